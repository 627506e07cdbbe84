#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_rbac
short_description: Give PureLB's programs their permissions, or take them away
version_added: 0.1.0
author:
  - PureLB for Ansible authors (@purelb)
description:
  - Applies a ServiceAccount, a ClusterRole and a ClusterRoleBinding for C(lbnodeagent) and for C(allocator), and
    a Role and a RoleBinding for what C(lbnodeagent) does in its namespace.
  - The role P(purelb.purelb.purelb_install#role) does this, too. The module is for those who hand out permissions
    in a step of its own, by a user of its own.
  - ClusterRoles carry the namespace in their name, so two installations share no permissions.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
  - purelb.purelb.presence
  - purelb.purelb.writing
options:
  draining:
    description:
      - Whether the allocator may watch events about Nodes and taint them, as C(purelb_install_draining) of the
        role needs it.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: By a dry run in the API server, with its validation. Objects whose namespace is not there yet
      count as created.
seealso:
  - plugin: purelb.purelb.permissions
    plugin_type: filter
  - module: purelb.purelb.purelb_objects
notes:
  - The user needs the verbs get, patch and create (get and delete to remove) on serviceaccounts, roles,
    rolebindings, clusterroles and clusterrolebindings, and either all permissions that are handed out or the verbs
    bind and escalate on the roles.
  - The namespace is not made. Removing a ServiceAccount stops its program within the hour, or at its next start.
"""

EXAMPLES = r"""
- name: Let the programs do their work
  purelb.purelb.purelb_rbac:

- name: The same in another namespace, without permission to taint Nodes
  purelb.purelb.purelb_rbac:
    namespace: purelb-test
    draining: false

- name: Take the permissions away
  purelb.purelb.purelb_rbac:
    state: absent
"""

RETURN = r"""
results:
  description: What became of each object, in the order in which they were dealt with; each as in
    RV(purelb.purelb.purelb_objects#module:results[]).
  returned: success
  type: list
  elements: dict
  sample: [{kind: ClusterRole, name: "purelb:purelb-system:allocator", namespace: null, action: created}]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.apply import rbac
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import argspec, run


def main() -> None:
    spec = (
        argspec.connection()
        .merge(argspec.namespace())
        .merge(argspec.presence())
        .merge(argspec.ArgumentSpec({"draining": {"type": "bool", "default": True}}))
    )
    run.run(AnsibleModule(**spec.arguments(), supports_check_mode=True), rbac.manage)


if __name__ == "__main__":
    main()

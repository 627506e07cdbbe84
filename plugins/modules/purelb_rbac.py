#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_rbac
short_description: Grant or revoke the permissions of PureLB's programs
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Applies a ServiceAccount, a ClusterRole and a ClusterRoleBinding for C(lbnodeagent) and for C(allocator), and
    a Role and a RoleBinding of each in the namespace of PureLB.
  - The role P(purelb.purelb.purelb_install#role) does this, too. Use the module to grant permissions in a separate
    step, by another user.
  - The names of ClusterRoles contain the namespace.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
  - purelb.purelb.presence
  - purelb.purelb.writing
options:
  draining:
    description:
      - Whether the allocator may watch events in the namespace C(default) and taint Nodes. C(purelb_install_draining)
        of the role requires this, together with the admission policies.
    type: bool
    default: true
attributes:
  check_mode:
    support: full
    description: A dry run with the API server's validation. Objects whose namespace does not exist yet count as
      created.
seealso:
  - plugin: purelb.purelb.permissions
    plugin_type: filter
  - module: purelb.purelb.purelb_objects
notes:
  - The user needs the verbs get, patch and create (get and delete to remove) on serviceaccounts, roles,
    rolebindings, clusterroles and clusterrolebindings, and either all granted permissions or the verbs bind
    and escalate on the roles.
  - O(state=absent) leaves objects alone that do not have the labels of this collection.
  - The module does not create the namespace. A program whose ServiceAccount is removed fails within an hour, or at its
    next start.
"""

EXAMPLES = r"""
- name: Grant the permissions
  purelb.purelb.purelb_rbac:

- name: Grant them in another namespace, without the permission to taint Nodes
  purelb.purelb.purelb_rbac:
    namespace: purelb-test
    draining: false

- name: Revoke the permissions
  purelb.purelb.purelb_rbac:
    state: absent
"""

RETURN = r"""
results:
  description: Result for each object, in the order of processing; each as in
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

#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_policies_info
short_description: Check whether the admission policies are enforced, or wait until they are
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - An API server enforces a ValidatingAdmissionPolicy some time after it was created, and its status does not
    show it. This module sends a write to each policy of an installation that the policy must refuse.
  - Each write is a dry run by impersonation of C(lbnodeagent) or C(allocator). The policies C(reserved-annotations) and
    C(eviction-events), which limit all other users, get one from the module's own user. Nothing is changed, even if the
    write passes.
  - With several API servers, only the one that answers is checked.
  - A changed policy counts as enforced while the API server still applies its previous version.
  - The policy C(allocator-groups) is not checked, as the allocator has no permission for the writes that it refuses; nor is
    C(group-ranges), as by default it refuses nothing.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
options:
  draining:
    description:
      - Whether the allocator may taint Nodes, as in M(purelb.purelb.purelb_rbac). If not, the policies
        C(allocator-nodes) and C(eviction-events) are not checked, as the permissions already refuse such writes, and no
        program reads such events.
    type: bool
    default: true
  wait:
    description:
      - Whether to wait until every policy is enforced.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds after which the module fails if a policy is not enforced.
      - If something other than the policy forbids a write, such as a policy of another owner, the module waits at most
        30 seconds and returns a warning.
    type: int
    default: 60
attributes:
  check_mode:
    support: full
    description: Never changes anything. In check mode it does not wait.
  diff_mode:
    support: N/A
    description: Never changes anything.
seealso:
  - module: purelb.purelb.purelb_rbac
notes:
  - The user needs the verb impersonate on C(serviceaccounts) in O(namespace), patch on C(services) in the namespace
    C(default), get on C(validatingadmissionpolicies), and with O(draining) list on C(nodes) and create on C(events) in
    C(default). If one of these writes is not allowed, the module returns a warning.
"""

EXAMPLES = r"""
- name: Wait until the policies are enforced
  purelb.purelb.purelb_policies_info:
    wait: true
"""

RETURN = r"""
enforced:
  description: Whether every checked policy is enforced.
  returned: success
  type: bool
  sample: true
policies:
  description: The checked policies.
  returned: success
  type: list
  elements: dict
  contains:
    name:
      description: Name of the policy.
      type: str
      returned: success
      sample: lbnodeagent-leases.purelb-system.purelb.io
    enforced:
      description: Whether it is enforced, or V(null) if that could not be observed.
      type: bool
      returned: success
      sample: true
    reason:
      description: What was observed.
      type: str
      returned: success
      sample: it refuses writes
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.apply import policies
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import argspec, run


def main() -> None:
    spec = (
        argspec.connection()
        .merge(argspec.namespace())
        .merge(
            argspec.ArgumentSpec(
                {
                    "draining": {"type": "bool", "default": True},
                    "wait": {"type": "bool", "default": False},
                    "wait_timeout": {"type": "int", "default": 60},
                }
            )
        )
    )
    run.run(AnsibleModule(**spec.arguments(), supports_check_mode=True), policies.policies_info)


if __name__ == "__main__":
    main()

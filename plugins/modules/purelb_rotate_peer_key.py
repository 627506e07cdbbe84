#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_rotate_peer_key
short_description: Replace the key for the queries between the node agents
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Replaces the key in the Secret C(purelb-peers) without an interruption of the queries between agents. First it adds
    the new key, which agents then accept. When all agents accept the new key, they sign with it, and still accept the
    old one. When all agents sign with the new key, it removes the old one. It ends when no agent accepts the old key.
  - Agents read the Secret while they run and write the ids of its keys to their Leases, so nothing is restarted and each
    step waits for the agents themselves. A step takes as long as the kubelets take to refresh a mounted Secret, a minute
    or two.
  - After an interruption, the next run finishes that rotation and starts no other one.
  - The module creates the key itself and does not write it to a result or a log. The id of a key does not reveal it.
  - The module does not wait for nodes whose Lease has expired, and names them in a warning.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
options:
  wait_timeout:
    description:
      - Seconds that all agents together have to read the keys of a step.
    type: int
    default: 300
attributes:
  check_mode:
    support: full
    description: Returns the steps that would follow. Does not wait.
  diff_mode:
    support: none
    description: The content of a Secret is not shown.
seealso:
  - module: purelb.purelb.purelb_lease_info
notes:
  - The user needs, in O(namespace), the verbs get and patch on the C(secrets) C(purelb-peers), and list on C(leases).
  - Compares the renewal time of a Lease with the clock of the machine that runs the module.
"""

EXAMPLES = r"""
- name: Replace the key of the agents
  purelb.purelb.purelb_rotate_peer_key:
"""

RETURN = r"""
steps:
  description: The steps that were done, of C(add), C(switch) and C(remove); in check mode the ones that would be.
  type: list
  elements: str
  returned: success
  sample: [add, switch, remove]
key_id:
  description: Id of the key that the agents now sign with, in check mode of the present one. It is in the annotation C(purelb.io/peer-keys) of their Leases.
  type: str
  returned: success
  sample: 3fa9c1d2
nodes:
  description: Nodes whose agents have confirmed it; in check mode those that will be asked.
  type: list
  elements: str
  returned: success
  sample: [worker-1, worker-2, worker-3]
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.apply import peer_key
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import argspec, run


def main() -> None:
    spec = (
        argspec.connection()
        .merge(argspec.namespace())
        .merge(argspec.ArgumentSpec({"wait_timeout": {"type": "int", "default": 300}}))
    )
    run.run(AnsibleModule(**spec.arguments(), supports_check_mode=True), peer_key.rotate)


if __name__ == "__main__":
    main()

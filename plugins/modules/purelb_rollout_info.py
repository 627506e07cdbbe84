#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_rollout_info
short_description: Show the progress of a rollout of the node agents, or wait for its end
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Returns for each node whether it runs the current node agent, whether this agent is ready (the addresses that the node
    wins are usable), and whether it renews the node's Lease.
  - With O(wait), displays each node when it is done. If no further node is done within O(wait_timeout), fails with the
    node, the reason and a remediation.
  - Restarts nothing. The rollout is started by any change or restart of the DaemonSet, such as by the role
    P(purelb.purelb.purelb_install#role), C(kubectl rollout restart), or a GitOps controller.
  - Compares the renewal time of a Lease with the clock of the machine that runs the module.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
options:
  wait:
    description:
      - Whether to wait until every node is done.
    type: bool
    default: false
  wait_timeout:
    description:
      - Seconds to wait for the next node; restarted for each node.
    type: int
    default: 180
  known:
    description:
      - Nodes that are already done. The module returns when a further one is done. The action plugin of the same name
        then displays it and continues, so tasks do not need this option.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Never changes anything. With O(wait) it returns immediately, as there is no rollout to wait for.
  diff_mode:
    support: N/A
    description: Never changes anything.
  action:
    support: full
    description: The action plugin displays each node while the task runs.
seealso:
  - module: purelb.purelb.purelb_lease_info
notes:
  - The user needs, in O(namespace), the verb get on C(daemonsets), and list on C(pods), C(leases) and
    C(controllerrevisions).
"""

EXAMPLES = r"""
- name: Wait until all nodes are done after kubectl rollout restart
  purelb.purelb.purelb_rollout_info:
    wait: true

- name: Show the nodes that run the current agent
  purelb.purelb.purelb_rollout_info:
  register: rollout
"""

RETURN = r"""
complete:
  description: Whether every node that needs an agent is done.
  returned: success
  type: bool
  sample: true
reason:
  description: The pending condition; if complete, the number of nodes with an agent.
  returned: success
  type: str
  sample: 3 of 3 Pods are available
done:
  description: Names of the nodes that are done, sorted.
  returned: success
  type: list
  elements: str
  sample: [worker-1, worker-2, worker-3]
nodes:
  description: The nodes with a Pod of the agent, by name.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: Name of the node.
      type: str
      returned: success
      sample: worker-1
    pod:
      description: Name of its agent's Pod.
      type: str
      returned: success
      sample: lbnodeagent-x7k2p
    done:
      description: Whether it runs the current agent, ready, and this agent renews the Lease.
      type: bool
      returned: success
      sample: true
    begun:
      description: Whether the rollout has reached this node. Before that, the previous agent runs.
      type: bool
      returned: success
      sample: true
    reason:
      description: Why it is not done, or the confirmation.
      type: str
      returned: success
      sample: its Lease is renewed
    remediation:
      description: What to do if this does not change, or an empty string.
      type: str
      returned: success
      sample: ""
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.apply import rollout
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import argspec, run


def main() -> None:
    spec = (
        argspec.connection()
        .merge(argspec.namespace())
        .merge(
            argspec.ArgumentSpec(
                {
                    "wait": {"type": "bool", "default": False},
                    "wait_timeout": {"type": "int", "default": 180},
                    "known": {"type": "list", "elements": "str", "default": []},
                }
            )
        )
    )
    run.run(AnsibleModule(**spec.arguments(), supports_check_mode=True), rollout.rollout_info)


if __name__ == "__main__":
    main()

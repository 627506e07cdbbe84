#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_rollout_info
short_description: Show how far a rollout of the node agents is, or wait for its end
version_added: 0.1.0
author:
  - PureLB for Ansible authors (@purelb)
description:
  - Says for each node whether it has the present node agent, whether that is ready, which means that the addresses
    that the node wins are usable on it, and whether its Lease is renewed by this agent.
  - With O(wait) tells of each node as it is done, and fails with the node, the reason and what to do when no other
    node was done for O(wait_timeout).
  - Restarts nothing. Whatever changed the DaemonSet or restarted it (the role
    P(purelb.purelb.purelb_install#role), C(kubectl rollout restart), a GitOps controller) made the rollout.
  - Judges a Lease by its renewal time and the clock of the machine that the module runs on.
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
      - Seconds to wait for the next node, each time anew.
    type: int
    default: 180
  known:
    description:
      - Nodes that are known to be done. The module ends its wait when there is another one; the action plugin of the
        same name then tells of it and goes on, so that a task needs no such list.
    type: list
    elements: str
    default: []
attributes:
  check_mode:
    support: full
    description: Never changes anything. With O(wait) it returns at once, as there is no rollout to wait for.
  diff_mode:
    support: N/A
    description: Never changes anything.
  action:
    support: full
    description: An action plugin tells of each node while the task runs.
seealso:
  - module: purelb.purelb.purelb_lease_info
notes:
  - The user needs, in O(namespace), the verb get on C(daemonsets), and list on C(pods), C(leases) and
    C(controllerrevisions).
"""

EXAMPLES = r"""
- name: Wait until all nodes are through after kubectl rollout restart
  purelb.purelb.purelb_rollout_info:
    wait: true

- name: See which nodes have the present agent
  purelb.purelb.purelb_rollout_info:
  register: rollout
"""

RETURN = r"""
complete:
  description: Whether every node that is to have an agent is done.
  returned: success
  type: bool
  sample: true
reason:
  description: What is waited for; if it is complete, how many nodes have an agent.
  returned: success
  type: str
  sample: 3 of 3 Pods are available
done:
  description: Names of the nodes that are done, in order.
  returned: success
  type: list
  elements: str
  sample: [worker-1, worker-2, worker-3]
nodes:
  description: The nodes that have an agent's Pod, by name.
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
      description: Whether it has the present agent, ready, and a Lease that this agent renews.
      type: bool
      returned: success
      sample: true
    begun:
      description: Whether the rollout has come to this node. Until then its agent of before goes on.
      type: bool
      returned: success
      sample: true
    reason:
      description: Why it is not done, or that it is.
      type: str
      returned: success
      sample: its Lease is renewed
    remediation:
      description: What to do if it stays so.
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

#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_verify
short_description: Compare the addresses on nodes and segments with the expected ones
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Reads Leases, Services, ServiceGroups, LBNodeAgents and Nodes, computes the election in the same way as the agents, and
    compares the result with the output of M(purelb.purelb.purelb_vip_info) on the nodes and of
    M(purelb.purelb.purelb_neighbor_info) on a segment.
  - "A local address must be on exactly one node, the winner, on the configured interface, with a lifetime no longer than
    the Lease, unless the fence ends it. A remote address must be on the dummy interface of every expected node. A Lease must list the subnets of its
    node. Only one host, the winner, must answer for an address."
  - Includes all findings of M(purelb.purelb.purelb_lease_info). The playbook C(purelb.purelb.verify) runs all
    three modules.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
  - purelb.purelb.reading
options:
  nodes:
    description:
      - Results of M(purelb.purelb.purelb_vip_info), by name of the Node. Put nodes on which it failed into O(unread).
      - Nodes with a live Lease that are in neither option are a finding, unless both options are empty.
      - Without any, the module fails unless O(examine) leaves C(nodes) out.
    type: dict
    default: {}
  unread:
    description:
      - Reasons why M(purelb.purelb.purelb_vip_info) failed, by name of the Node. Each is a finding.
    type: dict
    default: {}
  answers:
    description:
      - RV(purelb.purelb.purelb_neighbor_info#module:answers) of M(purelb.purelb.purelb_neighbor_info); the lists of several
        hosts can be concatenated.
      - Without any, the module fails unless O(examine) leaves C(segment) out, or there is no local address.
    type: list
    elements: dict
    default: []
  unasked:
    description:
      - Reasons why M(purelb.purelb.purelb_neighbor_info) failed, by name of the host. Each is a finding.
    type: dict
    default: {}
  examine:
    description:
      - What must be examined in addition to the cluster. An entry of this list that was not examined is a finding with
        the severity error.
    type: list
    elements: str
    choices: [nodes, segment]
    default: [nodes, segment]
  check_metrics:
    description:
      - Whether to read the metrics of each node with a live Lease, from the machine that runs the module.
    type: bool
    default: false
  metrics_port:
    description:
      - Port of the metrics.
    type: int
    default: 7472
  fail_on:
    description:
      - The lowest severity of a finding for which the module fails. It always returns all findings.
    type: str
    choices: [error, warning, never]
    default: error
seealso:
  - module: purelb.purelb.purelb_vip_info
  - module: purelb.purelb.purelb_neighbor_info
  - module: purelb.purelb.purelb_lease_info
notes:
  - The user needs the verb list on C(leases), C(pods), C(daemonsets.apps), C(deployments.apps),
    C(servicegroups.purelb.io) and C(lbnodeagents.purelb.io) in O(namespace), and on C(services) and C(nodes) in the whole
    cluster; on C(endpointslices) as for M(purelb.purelb.purelb_lease_info).
  - It changes nothing. It is not named C(_info), because it judges what others read, and fails as O(fail_on) says.
  - The inputs are read at slightly different times. While addresses move, repeat the check before acting on a finding.
"""

EXAMPLES = r"""
- name: Read the nodes
  hosts: nodes
  gather_facts: false
  tasks:
    - name: Read their addresses
      purelb.purelb.purelb_vip_info:
        pools: [192.168.1.240-192.168.1.250]
      register: seen

- name: Compare with the expected state
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Fail if an address does not work
      purelb.purelb.purelb_verify:
        nodes: "{{ dict(names | zip(names | map('extract', hostvars, 'seen'))) }}"
        examine: [nodes]
      vars:
        names: "{{ groups['nodes'] }}"
"""

RETURN = r"""
nodes:
  description: The Nodes, by name; each as in RV(purelb.purelb.purelb_lease_info#module:nodes[]).
  returned: always
  type: list
  elements: dict
leases:
  description: The Leases of the node agents, by node; each as in RV(purelb.purelb.purelb_lease_info#module:leases[]).
  returned: always
  type: list
  elements: dict
vips:
  description: The addresses that PureLB assigned to Services; each as in
    RV(purelb.purelb.purelb_lease_info#module:vips[]), with the observations.
  returned: always
  type: list
  elements: dict
  contains:
    holders:
      description: Nodes that have the address on an interface, according to O(nodes).
      type: list
      elements: dict
      returned: always
      contains:
        node:
          description: The node.
          type: str
          returned: always
          sample: worker-2
        interface:
          description: The interface.
          type: str
          returned: always
          sample: eth0
        mac:
          description: The interface's MAC address.
          type: str
          returned: always
          sample: 02:00:00:00:00:02
    macs:
      description: MAC addresses of all hosts that answer for the address on the segment, or null if O(answers) does not
        contain it.
      type: list
      elements: str
      returned: always
      sample: ["02:00:00:00:00:02"]
findings:
  description: Deviations from the expected state, errors first; each as in
    RV(purelb.purelb.purelb_lease_info#module:findings[]).
  returned: always
  type: list
  elements: dict
error_count:
  description: Number of errors.
  type: int
  returned: always
  sample: 0
warning_count:
  description: Number of warnings.
  type: int
  returned: always
  sample: 0
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.audit import verify_run
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import argspec, run


def main() -> None:
    spec = (
        argspec.connection()
        .merge(argspec.namespace())
        .merge(
            argspec.ArgumentSpec(
                {
                    "nodes": {"type": "dict", "default": {}},
                    "unread": {"type": "dict", "default": {}},
                    "answers": {"type": "list", "elements": "dict", "default": []},
                    "unasked": {"type": "dict", "default": {}},
                    "examine": {
                        "type": "list",
                        "elements": "str",
                        "choices": ["nodes", "segment"],
                        "default": ["nodes", "segment"],
                    },
                    "check_metrics": {"type": "bool", "default": False},
                    "metrics_port": {"type": "int", "default": 7472},
                    "fail_on": {
                        "type": "str",
                        "choices": ["error", "warning", "never"],
                        "default": "error",
                    },
                }
            )
        )
    )
    module = AnsibleModule(**spec.arguments(), supports_check_mode=True)
    run.run(module, verify_run.verification)


if __name__ == "__main__":
    main()

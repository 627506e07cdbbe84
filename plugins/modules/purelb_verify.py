#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_verify
short_description: Compare what is on nodes and segments with what should be there
version_added: 0.1.0
author:
  - PureLB for Ansible authors (@purelb)
description:
  - Reads Leases, Services, ServiceGroups, LBNodeAgents and Nodes, holds the election that the agents hold, and compares
    its outcome with what M(purelb.purelb.purelb_vip_info) saw on the nodes and M(purelb.purelb.purelb_neighbor_info) heard on
    a segment.
  - "A local address must be on exactly one node, the winner, on the interface that the node's configuration says, and
    for no longer than the node's Lease. A remote address must be on the dummy interface of every node that should have
    it. A Lease must name the subnets that its node is in. One host must answer for an address: the winner."
  - Finds everything that M(purelb.purelb.purelb_lease_info) finds, too. The playbook C(purelb.purelb.verify) runs all
    three modules.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
  - purelb.purelb.reading
options:
  nodes:
    description:
      - By name of the Node, what M(purelb.purelb.purelb_vip_info) returned there. Nodes where it failed belong in
        O(unread).
      - Nodes with a live Lease that are missing in both are a finding, unless all are.
    type: dict
    default: {}
  unread:
    description:
      - By name of the Node, why M(purelb.purelb.purelb_vip_info) returned nothing there. Each is a finding.
    type: dict
    default: {}
  answers:
    description:
      - What M(purelb.purelb.purelb_neighbor_info) returned as RV(purelb.purelb.purelb_neighbor_info#module:answers); the lists of
        several hosts can be joined.
    type: list
    elements: dict
    default: []
  check_metrics:
    description:
      - Whether to ask each node with a live Lease for its metrics, from where the module runs.
    type: bool
    default: false
  metrics_port:
    description:
      - Port of the metrics.
    type: int
    default: 7472
  fail_on:
    description:
      - The least severity of a finding that makes the module fail. It returns all findings in any case.
    type: str
    choices: [error, warning, never]
    default: error
seealso:
  - module: purelb.purelb.purelb_vip_info
  - module: purelb.purelb.purelb_neighbor_info
  - module: purelb.purelb.purelb_lease_info
notes:
  - The user needs the verb list on C(leases), C(servicegroups.purelb.io) and C(lbnodeagents.purelb.io) in O(namespace),
    and on C(services) and C(nodes) in the whole cluster; on C(endpointslices) too where a Service has node affinity, or
    is announced by all nodes and takes only local traffic.
  - It compares what was seen at slightly different moments. While addresses move, run it again before you believe it.
"""

EXAMPLES = r"""
- name: Look at the nodes
  hosts: nodes
  gather_facts: false
  tasks:
    - name: Read what they have
      purelb.purelb.purelb_vip_info:
        pools: [192.168.1.240-192.168.1.250]
      register: seen

- name: Compare it with what should be
  hosts: localhost
  gather_facts: false
  tasks:
    - name: Fail if an address does not work as it should
      purelb.purelb.purelb_verify:
        nodes: "{{ dict(names | zip(names | map('extract', hostvars, 'seen'))) }}"
      vars:
        names: "{{ groups['nodes'] }}"
"""

RETURN = r"""
leases:
  description: The Leases of the node agents, by node; each as in RV(purelb.purelb.purelb_lease_info#module:leases[]).
  returned: always
  type: list
  elements: dict
vips:
  description: The addresses that PureLB gave to Services; each as in
    RV(purelb.purelb.purelb_lease_info#module:vips[]), and with what was seen of it.
  returned: always
  type: list
  elements: dict
  contains:
    holders:
      description: Nodes that have the address on an interface, as far as O(nodes) tells.
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
      description: MAC addresses of all that answer for the address on the segment, or null where O(answers) does not
        tell.
      type: list
      elements: str
      returned: always
      sample: ["02:00:00:00:00:02"]
findings:
  description: What is not as it should be, errors first; each as in
    RV(purelb.purelb.purelb_lease_info#module:findings[]).
  returned: always
  type: list
  elements: dict
error_count:
  description: How many findings are errors.
  type: int
  returned: always
  sample: 0
warning_count:
  description: How many findings are warnings.
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

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
    its outcome with what M(purelb.purelb.purelb_vip_info) saw on the nodes and M(purelb.purelb.purelb_wire_info) heard on
    a segment.
  - "A local address must be on exactly one node, the winner, on the interface that the node's configuration says, and
    for no longer than the node's Lease. A remote address must be on the dummy interface of every node that should have
    it. A Lease must name the subnets that its node is in. One host must answer for an address: the winner."
  - Finds everything that M(purelb.purelb.purelb_lease_info) finds, too. The playbook C(purelb.purelb.verify) runs all
    three modules.
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
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
      - What M(purelb.purelb.purelb_wire_info) returned as RV(purelb.purelb.purelb_wire_info#module:answers); the lists of
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
attributes:
  check_mode:
    support: full
    description: Never changes anything.
  diff_mode:
    support: N/A
    description: Never changes anything.
seealso:
  - module: purelb.purelb.purelb_vip_info
  - module: purelb.purelb.purelb_wire_info
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
  description: The Leases of the node agents, by node.
  returned: always
  type: list
  elements: dict
  contains:
    node:
      description: Node that the Lease is for.
      type: str
      returned: always
      sample: worker-1
    holder:
      description: Node that the Lease says holds it; the same as RV(leases[].node) if all is well.
      type: str
      returned: always
      sample: worker-1
    instance:
      description: UID of the Pod that renews the Lease.
      type: str
      returned: always
      sample: 6f2c0d4e-5f0c-4f0a-9a53-2b7a3c1d9e10
    subnets:
      description: Subnets of the node, for whose addresses it is a candidate.
      type: list
      elements: str
      returned: always
      sample: [192.168.1.0/24]
    duration:
      description: Seconds that the Lease counts after a renewal.
      type: float
      returned: always
      sample: 10.0
    age:
      description: Seconds since the last renewal, or null if there was none.
      type: float
      returned: always
      sample: 2.415
    live:
      description: Whether the node takes part in elections.
      type: bool
      returned: always
      sample: true
    reason:
      description: Why. One of C(live), C(expired), C(neverRenewed) and C(fromTheFuture).
      type: str
      returned: always
      sample: live
    outage:
      description: The last outage of the API through which the node kept its addresses, because no node could renew its
        Lease, or null.
      type: dict
      returned: always
      contains:
        begin:
          description: When the node had last renewed its Lease before.
          type: str
          returned: always
          sample: "2026-11-21T10:00:00.000000Z"
        end:
          description: When it renewed it again.
          type: str
          returned: always
          sample: "2026-11-21T10:03:00.000000Z"
        seconds:
          description: How long that was.
          type: float
          returned: always
          sample: 180.0
vips:
  description: The addresses that PureLB gave to Services.
  returned: always
  type: list
  elements: dict
  contains:
    address:
      description: The address.
      type: str
      returned: always
      sample: 192.168.1.240
    family:
      description: C(IPv4) or C(IPv6).
      type: str
      returned: always
      sample: IPv4
    services:
      description: The Services that have the address, as C(namespace/name); several if they share it.
      type: list
      elements: str
      returned: always
      sample: [default/web]
    pool_type:
      description: C(local) if the address lives on one node, C(remote) if on every node.
      type: str
      returned: always
      sample: local
    candidates:
      description: The first five nodes that may have the address, the winner first, then who would follow; of a
        remote address the first five, by name, that should have it.
      type: list
      elements: str
      returned: always
      sample: [worker-2, worker-1]
    candidate_count:
      description: How many nodes may have the address; of a remote address, should have it.
      type: int
      returned: always
      sample: 2
    winner:
      description: Node that should announce the address, or null.
      type: str
      returned: always
      sample: worker-2
    reason:
      description: Why, in the word that the agents' logs, metrics and events use.
      type: str
      returned: always
      sample: electionWon
    announcing:
      description: Nodes that say on the Service that they announce the address.
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
          description: The interface that has the address.
          type: str
          returned: always
          sample: eth0
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
  description: What is not as it should be, errors first.
  returned: always
  type: list
  elements: dict
  contains:
    severity:
      description: C(error) if an address does not work as it should, otherwise C(warning).
      type: str
      returned: always
      sample: error
    code:
      description: One word for the kind of finding.
      type: str
      returned: always
      sample: notAnnounced
    object:
      description: What the finding is about.
      type: str
      returned: always
      sample: 192.168.1.240 (default/web)
    message:
      description: What is the case.
      type: str
      returned: always
      sample: worker-2 wins the election and does not say that it announces it
    mend:
      description: What to do about it.
      type: str
      returned: always
      sample: look at the lbnodeagent log on worker-2
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

from ansible_collections.purelb.purelb.plugins.module_utils.purelb import argspec, run, verifying


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
    run.run(module, verifying.verification)


if __name__ == "__main__":
    main()

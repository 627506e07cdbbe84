#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_lease_info
short_description: Show which node should have which address, and what is wrong
version_added: 0.1.0
author:
  - PureLB for Ansible authors (@purelb)
description:
  - Reads the Leases of the node agents and the Services of type LoadBalancer, and holds the election that
    the agents hold. Says for each address who the candidates are, who wins, and who says to announce it.
  - Judges a Lease by its renewal time and the clock of the machine that the module runs on. The agents do
    not depend on clocks.
  - Shows leader locks too, by default that of the allocator, and says which are held, expired or free, and which
    change hands again and again.
options:
  leader_locks:
    description:
      - Leader locks to look at, of any program. Without this the Lease C(purelb-allocator) in O(namespace), by which
        one of several allocators leads.
    type: list
    elements: dict
    suboptions:
      kind:
        description:
          - What the lock is. On V(Endpoints) and V(ConfigMap) objects, where programs older than Leases keep it, it
            is the annotation C(control-plane.alpha.kubernetes.io/leader).
        type: str
        choices: [Lease, Endpoints, ConfigMap]
        default: Lease
      namespace:
        description: Namespace of the object; O(namespace) by default.
        type: str
      name:
        description: Name of the object.
        type: str
        required: true
extends_documentation_fragment:
  - purelb.purelb.connection
  - purelb.purelb.namespace
  - purelb.purelb.reading
seealso:
  - module: purelb.purelb.purelb_objects
notes:
  - The user needs the verb list on C(leases) in O(namespace), and on C(services) and C(nodes) in the whole
    cluster; on C(endpointslices) too where a Service has node affinity, or is announced by all nodes and takes
    only local traffic; and on the kind of each of O(leader_locks) in its namespace.
  - A cluster whose agents run with draining switched off is judged as if it were on.
"""

EXAMPLES = r"""
- name: See who has which address
  purelb.purelb.purelb_lease_info:
  register: purelb

- name: See who leads the control plane, and a program that keeps its lock on an Endpoints object
  purelb.purelb.purelb_lease_info:
    leader_locks:
      - {namespace: kube-system, name: kube-controller-manager}
      - {namespace: kube-system, name: kube-scheduler}
      - {namespace: kube-system, name: old-controller, kind: Endpoints}
  register: control_plane

- name: Fail if an address does not work as it should
  ansible.builtin.assert:
    that: errors | length == 0
    fail_msg: "{{ errors }}"
  vars:
    errors: "{{ purelb.findings | selectattr('severity', 'eq', 'error') }}"

- name: Fail unless every node takes part in elections
  ansible.builtin.assert:
    that: purelb.leases | rejectattr('live') | length == 0
"""

RETURN = r"""
leases:
  description: The Leases of the node agents, by node.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: Node that the Lease is for.
      type: str
      returned: success
      sample: worker-1
    holder:
      description: Node that the Lease says holds it; the same as RV(leases[].node) if all is well.
      type: str
      returned: success
      sample: worker-1
    instance:
      description: UID of the Pod that renews the Lease.
      type: str
      returned: success
      sample: 6f2c0d4e-5f0c-4f0a-9a53-2b7a3c1d9e10
    subnets:
      description: Subnets of the node, for whose addresses it is a candidate.
      type: list
      elements: str
      returned: success
      sample: [192.168.1.0/24]
    duration:
      description: Seconds that the Lease counts after a renewal.
      type: float
      returned: success
      sample: 10.0
    age:
      description: Seconds since the last renewal, or null if there was none.
      type: float
      returned: success
      sample: 2.415
    live:
      description: Whether the node takes part in elections.
      type: bool
      returned: success
      sample: true
    reason:
      description: Why. One of C(live), C(expired), C(neverRenewed) and C(fromTheFuture).
      type: str
      returned: success
      sample: live
    draining:
      description: Whether a taint of the node keeps addresses away from it.
      type: bool
      returned: success
      sample: false
    outage:
      description: The last outage of the API through which the node kept its addresses, because no node could renew its
        Lease, or null.
      type: dict
      returned: success
      contains:
        begin:
          description: When the node had last renewed its Lease before.
          type: str
          returned: success
          sample: "2026-11-21T10:00:00.000000Z"
        end:
          description: When it renewed it again.
          type: str
          returned: success
          sample: "2026-11-21T10:03:00.000000Z"
        seconds:
          description: How long that was.
          type: float
          returned: success
          sample: 180.0
leader_locks:
  description: The leader locks, in the order in which they were asked for.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the object that is the lock, or carries it.
      type: str
      returned: success
      sample: Lease
    namespace:
      description: Its namespace.
      type: str
      returned: success
      sample: purelb-system
    name:
      description: Its name.
      type: str
      returned: success
      sample: purelb-allocator
    holder:
      description: Who leads, or last led; empty if nobody holds the lock.
      type: str
      returned: success
      sample: allocator-7d9c8b6f5-x2x7k_0f6f4a0e-3d0c-4a44-8a1b-6c2f1f7b9d1e
    state:
      description: C(held) if it was renewed within its duration, by the clock of this machine; C(expired) if it was
        not; C(released) if nobody holds it; C(absent) if there is no such object; C(unreadable) if the object does
        not say who leads.
      type: str
      returned: success
      sample: held
    duration:
      description: Seconds that the lock counts after a renewal.
      type: float
      returned: success
      sample: 15.0
    age:
      description: Seconds since the last renewal, or null if there was none.
      type: float
      returned: success
      sample: 1.204
    held_for:
      description: Seconds since the holder acquired it, or null if nobody holds it.
      type: float
      returned: success
      sample: 86400.0
    transitions:
      description: How often it passed to another holder.
      type: int
      returned: success
      sample: 3
    transitions_per_hour:
      description: The same by hour, on average since the object was made, or null if that is not known.
      type: float
      returned: success
      sample: 0.125
    flapping:
      description: Whether it changes hands again and again. That is so if it did four times or more, more than once
        an hour on average since the object was made, and last within the last hour. One look cannot see more, so a
        lock that was calm for long and changes hands often since today is found only after a while.
      type: bool
      returned: success
      sample: false
vips:
  description: The addresses that PureLB gave to Services.
  returned: success
  type: list
  elements: dict
  contains:
    address:
      description: The address.
      type: str
      returned: success
      sample: 192.168.1.240
    family:
      description: C(IPv4) or C(IPv6).
      type: str
      returned: success
      sample: IPv4
    services:
      description: The Services that have the address, as C(namespace/name); several if they share it.
      type: list
      elements: str
      returned: success
      sample: [default/web]
    pool_type:
      description: C(local) if the address lives on one node, C(remote) if on every node.
      type: str
      returned: success
      sample: local
    candidates:
      description: The first five nodes that may have the address, the winner first, then who would follow; of a
        remote address the first five, by name, that should have it.
      type: list
      elements: str
      returned: success
      sample: [worker-2, worker-1]
    candidate_count:
      description: How many nodes may have the address; of a remote address, should have it.
      type: int
      returned: success
      sample: 2
    winner:
      description: Node that should announce the address, or null.
      type: str
      returned: success
      sample: worker-2
    reason:
      description: Why, in the word that the agents' logs, metrics and events use.
      type: str
      returned: success
      sample: electionWon
    announcing:
      description: Nodes that say on the Service that they announce the address.
      type: list
      elements: dict
      returned: success
      contains:
        node:
          description: The node.
          type: str
          returned: success
          sample: worker-2
        interface:
          description: The interface that has the address.
          type: str
          returned: success
          sample: eth0
findings:
  description: What is not as it should be, errors first.
  returned: success
  type: list
  elements: dict
  contains:
    severity:
      description: C(error) if an address does not work as it should, otherwise C(warning).
      type: str
      returned: success
      sample: error
    code:
      description: One word for the kind of finding.
      type: str
      returned: success
      sample: notAnnounced
    object:
      description: What the finding is about.
      type: str
      returned: success
      sample: 192.168.1.240 (default/web)
    message:
      description: What is the case.
      type: str
      returned: success
      sample: worker-2 wins the election and does not say that it announces it
    remediation:
      description: What to do about it.
      type: str
      returned: success
      sample: look at the lbnodeagent log on worker-2
"""

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.audit import cluster_reader
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.module import argspec, run


def main() -> None:
    spec = argspec.connection().merge(argspec.namespace()).merge(argspec.leader_locks())
    run.run(AnsibleModule(**spec.arguments(), supports_check_mode=True), cluster_reader.lease_info)


if __name__ == "__main__":
    main()

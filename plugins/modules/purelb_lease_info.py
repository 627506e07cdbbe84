#!/usr/bin/python
# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

from __future__ import annotations

DOCUMENTATION = r"""
---
module: purelb_lease_info
short_description: Show the expected node of each address, and all errors
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Reads the Leases of the node agents and the Services of type LoadBalancer, and computes the election in the same way
    as the agents. Returns for each address the candidates, the winner, and the nodes that report to announce it.
  - Compares the renewal time of a Lease with the clock of the machine that runs the module. The agents do not depend on
    synchronized clocks.
  - Reads the DaemonSet, the Deployment, the Pods, the Nodes and the ServiceGroups, too. Returns which Nodes take part
    in elections, and as findings why a Node does not work or a Service has no address. For a Service it repeats the
    allocator's decision.
  - Fails if PureLB is not installed in O(namespace), or if the API server does not serve its API version v2.
  - Also reads leader locks, by default that of the allocator, and returns which are held, expired or free, and which
    change their holder too often.
options:
  leader_locks:
    description:
      - Leader locks to read, of any program. By default the Lease C(purelb-allocator) in O(namespace), the lock of the
        allocators.
    type: list
    elements: dict
    suboptions:
      kind:
        description:
          - Kind of the object. On V(Endpoints) and V(ConfigMap), which older programs use, the lock is the annotation
            C(control-plane.alpha.kubernetes.io/leader).
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
  - The user needs the verb list on C(leases), C(pods), C(daemonsets.apps), C(deployments.apps) and
    C(servicegroups.purelb.io) in O(namespace), and on C(services) and C(nodes) in the whole cluster; and on the kind
    of each of O(leader_locks) in its namespace. It needs list on C(endpointslices) where a Service has node affinity, or is
    announced by all nodes and takes only local traffic; elsewhere it does not report C(noEndpoint) without.
  - The module assumes that draining is enabled in the agents.
"""

EXAMPLES = r"""
- name: Read all addresses and their nodes
  purelb.purelb.purelb_lease_info:
  register: purelb

- name: Read the leaders of the control plane, and of a program with an Endpoints lock
  purelb.purelb.purelb_lease_info:
    leader_locks:
      - {namespace: kube-system, name: kube-controller-manager}
      - {namespace: kube-system, name: kube-scheduler}
      - {namespace: kube-system, name: old-controller, kind: Endpoints}
  register: control_plane

- name: Fail if an address does not work
  ansible.builtin.assert:
    that: errors | length == 0
    fail_msg: "{{ errors }}"
  vars:
    errors: "{{ purelb.findings | selectattr('severity', 'eq', 'error') }}"

- name: Fail unless every node takes part in elections
  ansible.builtin.assert:
    that: purelb.nodes | rejectattr('state', 'in', ['live', 'exempt']) | length == 0
"""

RETURN = r"""
nodes:
  description: The Nodes of the cluster, by name.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: Name of the Node.
      type: str
      returned: success
      sample: worker-1
    state:
      description: C(live) if the node has a live Lease and so takes part in elections; C(excluded) if the DaemonSet puts no
        agent there, and C(exempt) if moreover the Node has the label
        C(node.kubernetes.io/exclude-from-external-load-balancers); C(silent) if the agent's Pod is ready and does not
        renew the Lease; otherwise C(down).
      type: str
      returned: success
      sample: live
    reason:
      description: Why it does not take part in elections; empty if it does.
      type: str
      returned: success
      sample: ""
    ready:
      description: Whether the Node is Ready.
      type: bool
      returned: success
      sample: true
    pod:
      description: Name of the agent's Pod on it; empty without one.
      type: str
      returned: success
      sample: lbnodeagent-x2x7k
leases:
  description: The Leases of the node agents, by node.
  returned: success
  type: list
  elements: dict
  contains:
    node:
      description: Node of the Lease.
      type: str
      returned: success
      sample: worker-1
    holder:
      description: Holder in the Lease; equal to RV(leases[].node) in a correct state.
      type: str
      returned: success
      sample: worker-1
    instance:
      description: UID of the Pod that renews the Lease.
      type: str
      returned: success
      sample: 6f2c0d4e-5f0c-4f0a-9a53-2b7a3c1d9e10
    subnets:
      description: Subnets of the node. It is a candidate for addresses in them.
      type: list
      elements: str
      returned: success
      sample: [192.168.1.0/24]
    duration:
      description: Seconds for which the Lease is valid after a renewal.
      type: float
      returned: success
      sample: 10.0
    age:
      description: Seconds since the last renewal, or null if it was never renewed.
      type: float
      returned: success
      sample: 2.415
    live:
      description: Whether the node takes part in elections.
      type: bool
      returned: success
      sample: true
    reason:
      description: The reason. One of C(live), C(expired), C(neverRenewed) and C(fromTheFuture).
      type: str
      returned: success
      sample: live
    standing:
      description: C(first) if the node is chosen like any other. Where no such node can have an address, one is chosen that is
        C(excluded) (by the label C(node.kubernetes.io/exclude-from-external-load-balancers)), then one that is C(evicted), then
        one that is C(ill) (its kube-proxy does not answer). C(drained) gets none, as it has the taint of a leaving node.
      type: str
      returned: success
      sample: first
    draining:
      description: Whether a taint of the node excludes it from elections.
      type: bool
      returned: success
      sample: false
    outage:
      description: The last outage of the API in which the node kept its addresses, because no node could renew its
        Lease; or null.
      type: dict
      returned: success
      contains:
        begin:
          description: Last renewal before the outage.
          type: str
          returned: success
          sample: "2026-11-21T10:00:00.000000Z"
        end:
          description: First renewal after the outage.
          type: str
          returned: success
          sample: "2026-11-21T10:03:00.000000Z"
        seconds:
          description: Duration of the outage in seconds.
          type: float
          returned: success
          sample: 180.0
leader_locks:
  description: The leader locks, in the requested order.
  returned: success
  type: list
  elements: dict
  contains:
    kind:
      description: Kind of the object with the lock.
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
      description: Present or last leader; empty if the lock is released.
      type: str
      returned: success
      sample: allocator-7d9c8b6f5-x2x7k_0f6f4a0e-3d0c-4a44-8a1b-6c2f1f7b9d1e
    state:
      description: C(held) if it was renewed within its duration, by the clock of this machine, otherwise C(expired);
        C(released) if it has no holder; C(absent) if the object does not exist; C(unreadable) if it contains no valid
        lock.
      type: str
      returned: success
      sample: held
    duration:
      description: Seconds for which the lock is valid after a renewal.
      type: float
      returned: success
      sample: 15.0
    age:
      description: Seconds since the last renewal, or null if it was never renewed.
      type: float
      returned: success
      sample: 1.204
    held_for:
      description: Seconds since the holder acquired it, or null without a holder.
      type: float
      returned: success
      sample: 86400.0
    transitions:
      description: Number of changes of the holder.
      type: int
      returned: success
      sample: 3
    transitions_per_hour:
      description: Changes of the holder per hour, on average since the creation of the object, or null if unknown.
      type: float
      returned: success
      sample: 0.125
    flapping:
      description: Whether its holder changes too often. That is, four times or more, more than once an hour on average
        since the creation of the object, and most recently within the last hour. As this is an average, a lock that
        was stable for long and now flaps is detected late.
      type: bool
      returned: success
      sample: false
vips:
  description: The addresses that PureLB assigned to Services.
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
      description: The Services with the address, as C(namespace/name); several if they share it.
      type: list
      elements: str
      returned: success
      sample: [default/web]
    pool_type:
      description: C(local) if one node has the address, C(remote) if every node has it.
      type: str
      returned: success
      sample: local
    candidates:
      description: The first five candidates by preference, the winner first; for a remote address the first five
        expected nodes, by name.
      type: list
      elements: str
      returned: success
      sample: [worker-2, worker-1]
    candidate_count:
      description: Number of candidates; for a remote address, of expected nodes.
      type: int
      returned: success
      sample: 2
    winner:
      description: Node that should announce the address, or null.
      type: str
      returned: success
      sample: worker-2
    reason:
      description: The reason for the winner; the same word as in the agents' logs, metrics and events.
      type: str
      returned: success
      sample: electionWon
    announcing:
      description: Nodes that announce the address, according to the Service's annotations.
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
          description: The interface with the address.
          type: str
          returned: success
          sample: eth0
findings:
  description: Deviations from the expected state, errors first.
  returned: success
  type: list
  elements: dict
  contains:
    severity:
      description: C(error) if an address does not work, otherwise C(warning).
      type: str
      returned: success
      sample: error
    code:
      description: Kind of the finding, as one word.
      type: str
      returned: success
      sample: notAnnounced
    object:
      description: The affected object.
      type: str
      returned: success
      sample: 192.168.1.240 (default/web)
    message:
      description: What was found.
      type: str
      returned: success
      sample: worker-2 wins the election and does not say that it announces it
    remediation:
      description: What to do.
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

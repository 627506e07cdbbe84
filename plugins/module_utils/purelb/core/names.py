# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Every string that the programs, the modules and the cluster share.

Names that other tools depend on (dashboards, scripts, agents of the Go implementation in the same
cluster) are spelled here and nowhere else.
"""

from __future__ import annotations

API_GROUP = "purelb.io"
API_VERSION = "v2"
# For clients of PureLB v1; converted, never stored.
OLD_API_VERSION = "v1"
DEFAULT_NAMESPACE = "purelb-system"
# The namespace of PureLB v1.
OLD_NAMESPACE = "purelb"
DEFAULT_GROUP = "default"

LEASE_PREFIX = "purelb-node-"
LEASE_LABELS = {
    "app.kubernetes.io/name": "purelb",
    "app.kubernetes.io/component": "lbnodeagent",
}
SUBNETS_ANNOTATION = "purelb.io/subnets"
INSTANCE_ANNOTATION = "purelb.io/instance"
EPOCH_ANNOTATION = "purelb.io/epoch"
# What an agent says to those that it does not reach otherwise.
MAIL_ANNOTATION = "purelb.io/mail"
# On a node's Lease: the last API outage during which it held its addresses, as `begin/end`.
OUTAGE_ANNOTATION = "purelb.io/held-through-outage"
# On a node's Lease: the ids of the keys that its agent accepts from peers, first the one it signs
# with.
PEER_KEYS_ANNOTATION = "purelb.io/peer-keys"
# On a node's Lease: addresses of its subnets that another host has, as its agent found.
DUPLICATES_ANNOTATION = "purelb.io/duplicates"
# A host that answers for every address must not use up the pools.
MAX_DUPLICATES = 64
# On a node's Lease: its MAC addresses, by which other nodes tell it from a host outside.
MACS_ANNOTATION = "purelb.io/macs"
MAX_MACS = 16
# On a node's Lease: those of its subnets that the network replaces.
DEPRECATED_ANNOTATION = "purelb.io/deprecated-subnets"
# On a node's Lease: the other nodes that answer for its addresses.
ANSWERING_ANNOTATION = "purelb.io/answering-nodes"
MAX_ANSWERING = 16
# On a node's Lease: addresses that the status of a Node lists and that are VIPs, as `node/address`.
MISTAKEN_ANNOTATION = "purelb.io/mistaken-addresses"
MAX_MISTAKEN = 64
# On a node's Lease: addresses of Services that its agent knows from former pools.
OUTSIDE_ANNOTATION = "purelb.io/outside-pools"
# All agents write the same, with each renewal.
MAX_OUTSIDE = 256
# On a node's Lease: what its agent looks at in elections and the Go implementation does not.
RULES_ANNOTATION = "purelb.io/election-rules"
# On a node's Lease: whether its kube-proxy answers; see node.service_proxy.
SERVICE_PROXY_ANNOTATION = "purelb.io/service-proxy"
# On a node's Lease: whether its addresses fall silent exactly; see fence.gaps.
FENCE_ANNOTATION = "purelb.io/fence"
# The Go implementation reads no more, and an annotation should not hold a routing table.
MAX_SUBNETS = 256
# A wider one is no subnet of an interface: it would claim addresses of nearly all networks.
SHORTEST_PREFIX = {4: 8, 6: 16}
# Each agent reads the annotations of all Leases. What is longer is not read; see the policies.
MAX_LEASE_TEXT = 65536

# The leader lock of the allocator's replicas, a Lease in the namespace of the installation.
LEADER_LEASE = "purelb-allocator"
LEADER_LABELS = {
    "app.kubernetes.io/name": "purelb",
    "app.kubernetes.io/component": "allocator",
}
# Programs that predate Leases keep their lock in this annotation of an Endpoints or ConfigMap.
LEADER_ANNOTATION = "control-plane.alpha.kubernetes.io/leader"

SERVICE_GROUP_ANNOTATION = "purelb.io/service-group"
ALLOCATED_BY_ANNOTATION = "purelb.io/allocated-by"
ALLOCATED_BY = "PureLB"
ALLOCATED_FROM_ANNOTATION = "purelb.io/allocated-from"
POOL_TYPE_ANNOTATION = "purelb.io/pool-type"
SKIP_DAD_ANNOTATION = "purelb.io/skip-ipv6-dad"
ADDRESSES_ANNOTATION = "purelb.io/addresses"
SHARING_ANNOTATION = "purelb.io/allow-shared-ip"
ALLOW_LOCAL_ANNOTATION = "purelb.io/allow-local"
MULTI_POOL_ANNOTATION = "purelb.io/multi-pool"
REEVALUATE_ANNOTATION = "purelb.io/re-evaluate"
AFFINITY_ANNOTATION = "purelb.io/node-affinity"
AFFINITY_ENDPOINTS = "service-endpoints"
# On a Service that is being migrated.
MIGRATION_ANNOTATION = "purelb.io/migration"
# By IP version.
ANNOUNCING_ANNOTATIONS = {4: "purelb.io/announcing-IPv4", 6: "purelb.io/announcing-IPv6"}

# The labels of every object that the collection makes, and by which it knows them.
MARK = {"app.kubernetes.io/name": "purelb", "app.kubernetes.io/managed-by": "purelb.purelb"}

# The default interface for remote addresses; an LBNodeAgent may name another one.
DUMMY_INTERFACE = "kube-lb0"
# The ifalias of a link that an agent created, and may therefore remove.
LINK_ALIAS = "purelb"
# IFA_PROTO of each address that an agent puts on an interface: the mark by which it is recognised.
# The kernel keeps it from 5.18 on and uses 1 to 3 itself (linux/if_addr.h). No registry assigns the
# others: this one is no route protocol of iproute2's rt_protos, such as keepalived's 18, and not
# the 85 of OVN-Kubernetes.
ADDRESS_PROTOCOL = 112
# Where the fence is exact, addresses stay for longer than the right of their node, which the fence
# ends: these have another mark, as their right may have ended although they are there.
FENCED_PROTOCOL = 113
OUR_PROTOCOLS = frozenset({ADDRESS_PROTOCOL, FENCED_PROTOCOL})
# The interfaces to which kube-proxy in IPVS mode and kube-router add the addresses of all Services.
PROXY_INTERFACES = frozenset({"kube-ipvs0", "kube-dummy-if"})

# As spelled by the cloud providers' controllers. A program writes the taint of an eviction, the
# others are the word of an operator or of the cloud: of several the first in this order counts.
PREEMPT_EVENT_REASON = "PreemptScheduled"
SPOT_TAINT_KEY = "cloudprovider.azure.microsoft.com/draining"
SPOT_TAINT_VALUE = "spot-eviction"
SPOT_TAINT_EFFECT = "NoSchedule"
DRAINING_TAINTS = (
    "node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/shutdown",
    SPOT_TAINT_KEY,
)
# On a Node: it is meant to take no traffic of load balancers. kubeadm sets it on control planes.
EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers"
# On a Node: the last occurrence of such an event that led to the taint.
PREEMPTED_ANNOTATION = "purelb.io/preempted-by"

# Holds the keys with which the agents sign questions and answers to their peers.
PEER_SECRET = "purelb-peers"  # noqa: S105 - its name, not its content

# The default socket of an external IPAM sidecar; a ServiceGroup may name another one.
IPAM_SOCKET = "/var/run/purelb/ipam.sock"
# On a ServiceGroup or LBNodeAgent, as JSON. In v2: its original v1 spec, if a plain conversion back
# would spell it differently. In v1: the fields of its v2 spec that v1 does not have.
V1_SPEC_ANNOTATION = "purelb.io/v1-spec"
V2_SPEC_ANNOTATION = "purelb.io/v2-spec"

# The allocator's name where the API server notes who wrote a field (managedFields), those of its
# versions that gave none, and that of the Go implementation.
FIELD_MANAGER = "purelb-allocator"
FIELD_MANAGERS = frozenset({FIELD_MANAGER, "Python", "allocator"})

LOAD_BALANCER_CLASSES = frozenset({"purelb.io/purelbv2", "purelb.io/purelb-v2"})

# By IP version, as Service.spec.ipFamilies spells them.
FAMILIES = {4: "IPv4", 6: "IPv6"}
VERSIONS = {"IPv4": 4, "IPv6": 6}


def lease_name(node: str) -> str:
    """Return the name of a node's Lease."""
    return LEASE_PREFIX + node

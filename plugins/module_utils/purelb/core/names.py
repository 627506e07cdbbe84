# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Every string that the programs, the modules and the cluster share.

What other tools hold on to (dashboards, scripts, agents of another make in the same cluster) is
spelled here once and nowhere else.
"""

from __future__ import annotations

API_GROUP = "purelb.io"
API_VERSION = "v2"
# What clients of the first generation speak; converted, never stored.
OLD_API_VERSION = "v1"
DEFAULT_NAMESPACE = "purelb-system"
# Where the first generation lives.
OLD_NAMESPACE = "purelb"
DEFAULT_GROUP = "default"

LEASE_PREFIX = "purelb-node-"
LEASE_LABELS = {
    "app.kubernetes.io/name": "purelb",
    "app.kubernetes.io/component": "lbnodeagent",
}
SUBNETS_ANNOTATION = "purelb.io/subnets"
INSTANCE_ANNOTATION = "purelb.io/instance"
# On a node's Lease: the last outage of the API that it held its addresses through, as `begin/end`.
OUTAGE_ANNOTATION = "purelb.io/held-through-outage"
# Readers of other makes stop there, and an annotation is not a place for a routing table.
MAX_SUBNETS = 256

# The lock of the allocator's replicas, a Lease in the namespace of the installation.
LEADER_LEASE = "purelb-allocator"
LEADER_LABELS = {
    "app.kubernetes.io/name": "purelb",
    "app.kubernetes.io/component": "allocator",
}
# Where programs older than Leases keep such a lock: on an Endpoints or ConfigMap object.
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
# On a Service that is on its way from one PureLB to another.
MIGRATION_ANNOTATION = "purelb.io/migration"
# By IP version.
ANNOUNCING_ANNOTATIONS = {4: "purelb.io/announcing-IPv4", 6: "purelb.io/announcing-IPv6"}

# Where remote addresses live, unless an LBNodeAgent names another one.
DUMMY_INTERFACE = "kube-lb0"
# Marks a link that an agent made, and may therefore remove.
LINK_ALIAS = "purelb"

# As the cloud providers' controllers spell them.
PREEMPT_EVENT_REASON = "PreemptScheduled"
SPOT_TAINT_KEY = "cloudprovider.azure.microsoft.com/draining"
SPOT_TAINT_VALUE = "spot-eviction"
SPOT_TAINT_EFFECT = "NoSchedule"
DRAINING_TAINTS = (
    "node.kubernetes.io/out-of-service",
    "node.cloudprovider.kubernetes.io/shutdown",
    SPOT_TAINT_KEY,
)
# On a Node: the last occurrence of such an event that was turned into the taint.
PREEMPTED_ANNOTATION = "purelb.io/preempted-by"

# Holds the key by which the nodes' agents know each other's questions and answers.
PEER_SECRET = "purelb-peers"  # noqa: S105 - its name, not its content

# Where the allocator finds a sidecar that gives out addresses, unless a ServiceGroup says another.
IPAM_SOCKET = "/var/run/purelb/ipam.sock"
# On a ServiceGroup or LBNodeAgent, as JSON. In v2: its spec as v1 spelled it, where that is another
# spelling than the plain one. In v1: what of its spec in v2 has no word in v1.
V1_SPEC_ANNOTATION = "purelb.io/v1-spec"
V2_SPEC_ANNOTATION = "purelb.io/v2-spec"

LOAD_BALANCER_CLASSES = frozenset({"purelb.io/purelbv2", "purelb.io/purelb-v2"})

# By IP version, as Service.spec.ipFamilies spells them.
FAMILIES = {4: "IPv4", 6: "IPv6"}
VERSIONS = {"IPv4": 4, "IPv6": 6}


def lease_name(node: str) -> str:
    """Name of the Lease that a node's agent renews."""
    return LEASE_PREFIX + node

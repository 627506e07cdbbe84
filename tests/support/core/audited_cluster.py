# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A cluster as the audit and the verification see it: in order until a test breaks it."""

from __future__ import annotations

from dataclasses import replace

from purelb.core.api.nodes import NodeView
from purelb.core.api.workloads import Program, ProgramPod
from purelb.core.audit.evidence import Evidence, NeighborReply, Observation
from purelb.core.audit.installation import GroupRecords, Installation, audit_installation
from purelb.core.audit.verify import verify
from purelb.core.election.draining import NodeInfo
from purelb.core.election.election import rank
from purelb.core.leadership.leader import LeaderRecord
from purelb.core.leadership.locks import LockName, LockReport, LockState
from purelb.core.model import Announcement, InterfaceAddress, Lease, Link, PoolType
from purelb.core.names import ADDRESS_PROTOCOL
from purelb.core.times import format_time
from tests.support.core.snapshots import GROUP, NET4, NET6, service

NOW = 1_700_000_000.0
NODES = ("n1", "n2", "n3")
DUMMY = Link(9, "kube-lb0")
IMAGE = "registry.example.com/purelb:0.1.0"
AGENTS = Program(
    "DaemonSet purelb-system/lbnodeagent",
    image=IMAGE,
    node_selector={"os": "linux"},
    pods=tuple(ProgramPod(f"agent-{node}", node, IMAGE) for node in NODES),
)
ALLOCATOR = Program(
    "Deployment purelb-system/allocator",
    image=IMAGE,
    pods=(ProgramPod("allocator-1", "n1", IMAGE), ProgramPod("allocator-2", "n2", IMAGE)),
)
LOCK = LockReport(
    LockName("Lease", "purelb-system", "purelb-allocator"),
    LockState.HELD,
    LeaderRecord("allocator-1", 15.0),
    age=1.0,
)


def mac(node):
    return b"\x02\0\0\0\0" + bytes([int(node[1:])])


def eth0(node):
    return Link(2, "eth0", mac(node), default_metrics={4: 0, 6: 1024})


def own(node):
    number = 10 + int(node[1:])
    return tuple(
        InterfaceAddress(2, net.network_address + number, net.prefixlen) for net in (NET4, NET6)
    )


def held(vip, *, link=2, seconds=7.0, **more):
    ends = None if seconds is None else NOW + seconds
    default = {
        "prefixlen": 24 if vip.version == 4 else 64,
        "no_prefix_route": True,
        "protocol": ADDRESS_PROTOCOL,
    }
    return InterfaceAddress(link, vip, expires_at=ends, preferred_until=ends, **(default | more))


def node_view(name, *, is_ready=True, tainted=None, **more):
    info = NodeInfo(name, labels={"os": "linux"})
    return NodeView(replace(info, **more), is_ready, tainted)


class AuditedCluster:
    """Three nodes, the programs and Services with these addresses, all as they should be."""

    def __init__(self, *vips, pool_type=PoolType.LOCAL):
        self.leases = {n: Lease(n, (NET4, NET6), holder=n, renew_time=NOW - 2) for n in NODES}
        self.nodes = {n: node_view(n) for n in NODES}
        self.links = {n: (eth0(n), DUMMY) for n in NODES}
        self.held = {n: own(n) for n in NODES}
        self.services = []
        self.evidence = Evidence(groups=(GROUP,))
        self.unready = {}
        self.agents, self.allocator, self.lock = AGENTS, ALLOCATOR, LOCK
        self.seen = list(NODES)
        self.endpoints = {}
        for vip in vips:
            self.serve(vip, pool_type)

    def serve(self, vip, pool_type=PoolType.LOCAL, **more):
        """Add a Service with an address that is where it should be; return its holders."""
        holders = [rank(NODES, vip)[0]] if pool_type is PoolType.LOCAL else NODES
        entries = tuple(Announcement(n, "eth0", vip) for n in holders)
        default = {"announcing": {vip.version: entries}, "families": (vip.version,)}
        one = service(addresses=[vip], pool_type=pool_type, **(default | more))
        self.services.append(one)
        for node in holders:
            is_local = pool_type is PoolType.LOCAL
            self.put(node, held(vip) if is_local else held(vip, link=9, seconds=None))
        return holders

    def ask(self, name="new", *, age=60.0, families=(4,), **more):
        """Add a Service without an address, created `age` seconds ago."""
        default = {
            "allocated_by_us": False,
            "allocated_from": None,
            "pool_type": None,
            "families": families,
            "created": format_time(NOW - age),
        }
        self.services.append(service(name, addresses=(), **(default | more)))

    def put(self, node, *more):
        self.held[node] += more

    def only(self, node, *what):
        self.held[node] = own(node) + what

    def fail(self, node, *problems):
        """End a node's agent: no Lease, and its Pod has these problems; without any, no Pod."""
        del self.leases[node]
        pods = [pod for pod in self.agents.pods if pod.node != node]
        if problems:
            pods.append(ProgramPod(f"agent-{node}", node, IMAGE, problems))
        self.agents = replace(self.agents, pods=tuple(pods))

    def answered(self, vip, *macs):
        """Let the segment answer for an address."""
        reply = NeighborReply(vip, tuple(macs))
        self.evidence = replace(self.evidence, answers=(*self.evidence.answers, reply))

    def audit(self):
        """Return the report of the audit."""
        return audit_installation(
            Installation(
                self.lock,
                self.agents,
                self.allocator,
                tuple(self.leases.values()),
                self.services,
                tuple(self.nodes.values()),
                GroupRecords(self.evidence.groups, self.unready),
                self.endpoints,
                self.evidence.configs,
            ),
            wall_time=NOW,
        )

    def verify(self):
        """Return the verification."""
        observations = tuple(Observation(n, self.links[n], self.held[n]) for n in self.seen)
        return verify(self.audit(), replace(self.evidence, observations=observations))

    def audited(self):
        """Return severity and code of each finding of the audit."""
        return [(f.severity.value, f.code) for f in self.audit().findings]

    def found(self):
        """Return severity and code of each finding of the verification."""
        return [(f.severity.value, f.code) for f in self.verify().findings]

    def message(self):
        """Return the message of the only finding."""
        (finding,) = self.verify().findings
        return finding.message

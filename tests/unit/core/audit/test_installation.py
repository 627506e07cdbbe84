# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The findings about programs, Nodes, groups and Services that wait for an address."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.api.workloads import Program, ProgramPod
from purelb.core.audit.endpoints import endpoint_findings, is_ready_slice
from purelb.core.audit.installation import group_records_of
from purelb.core.audit.node_addresses import own_addresses
from purelb.core.audit.report import NodeState
from purelb.core.election.claims import ALL_CLASSES
from purelb.core.election.draining import Taint
from purelb.core.election.election import rank
from purelb.core.election.members import PROXY_RULE
from purelb.core.leadership.locks import LockState
from purelb.core.model import ExternalSource
from purelb.core.names import DRAINING_TAINTS, EXCLUDE_LABEL
from tests.support.core.audited_cluster import (
    ALLOCATOR,
    IMAGE,
    NODES,
    NOW,
    AuditedCluster,
    node_view,
)
from tests.support.core.snapshots import GROUP, NET4, VIP4, VIP6, service

HOUR = 3600.0


def texts(cluster, code):
    return [(f.object, f.message) for f in cluster.audit().findings if f.code == code]


def states(cluster):
    return {report.node: report.state for report in cluster.audit().nodes}


def test_a_cluster_in_order_has_no_finding():
    cluster = AuditedCluster(VIP4, VIP6)
    assert cluster.audited() == []
    assert states(cluster) == dict.fromkeys(NODES, NodeState.LIVE)


class TestNodeWithoutAgent:
    @pytest.mark.parametrize(
        "problem",
        [
            "Pod agent-n3: Unschedulable: 0/3 nodes are available",
            "Pod agent-n3, container lbnodeagent: ImagePullBackOff: no such host",
            "Pod agent-n3, container lbnodeagent: CrashLoopBackOff: back-off 5m0s",
        ],
    )
    def test_is_found_with_the_reason_of_its_pod(self, problem):
        cluster = AuditedCluster()
        cluster.fail("n3", problem)
        assert cluster.audited() == [("warning", "nodeWithoutAgent")]
        assert texts(cluster, "nodeWithoutAgent") == [("node n3", problem)]
        assert states(cluster)["n3"] is NodeState.DOWN

    def test_is_found_where_no_pod_is_and_one_should_be(self):
        cluster = AuditedCluster()
        cluster.fail("n3")
        assert texts(cluster, "nodeWithoutAgent") == [("node n3", "no Pod of the agent is there")]

    def test_is_found_where_the_pod_is_ready_and_no_lease_comes(self):
        cluster = AuditedCluster()
        del cluster.leases["n3"]
        assert texts(cluster, "nodeWithoutAgent") == [
            ("node n3", "it has no Lease, although Pod agent-n3 is ready")
        ]

    def test_says_so_if_the_node_is_not_ready(self):
        cluster = AuditedCluster()
        cluster.nodes["n3"] = node_view("n3", is_ready=False)
        del cluster.leases["n3"]
        ((_about, message),) = texts(cluster, "nodeWithoutAgent")
        assert message.startswith("the Node is not Ready; ")

    def test_is_left_to_the_lease_if_the_agent_does_not_renew_it(self):
        cluster = AuditedCluster()
        cluster.leases["n3"] = replace(cluster.leases["n3"], renew_time=NOW - 60)
        assert cluster.audited() == [("warning", "leaseExpired")]
        assert states(cluster)["n3"] is NodeState.SILENT

    def test_of_two_pods_the_one_that_works_counts(self):
        cluster = AuditedCluster()
        ending = ProgramPod("agent-old", "n3", IMAGE, ("Pod agent-old: is being deleted",))
        cluster.agents = replace(cluster.agents, pods=(ending, *cluster.agents.pods))
        assert cluster.audited() == []
        assert cluster.audit().nodes[2].pod == "agent-n3"

    def test_excluded_nodes_are_one_finding_for_each_reason(self):
        cluster = AuditedCluster()
        windows = [f"w{number}" for number in range(7)]
        for name in windows:
            cluster.nodes[name] = node_view(name, labels={"os": "windows"})
        taint = Taint("dedicated", "db", "NoSchedule")
        cluster.nodes["db"] = node_view("db", taints=(taint,))
        assert texts(cluster, "nodeWithoutAgent") == [
            (
                "DaemonSet purelb-system/lbnodeagent",
                "puts no agent on db: it does not tolerate the taint dedicated",
            ),
            (
                "DaemonSet purelb-system/lbnodeagent",
                "puts no agent on w0, w1, w2, w3, w4 and 2 more: its nodeSelector wants os=linux",
            ),
        ]
        assert states(cluster)["db"] is NodeState.EXCLUDED

    def test_excluded_on_purpose_is_no_finding(self):
        cluster = AuditedCluster()
        cluster.nodes["w"] = node_view("w", labels={EXCLUDE_LABEL: ""})
        assert cluster.audited() == []
        assert states(cluster)["w"] is NodeState.EXEMPT

    def test_on_no_node_where_there_is_no_daemon_set(self):
        cluster = AuditedCluster()
        cluster.agents = Program(cluster.agents.title, is_present=False)
        assert cluster.audited() == [("warning", "nodeWithoutAgent")]


class TestNodeThatHardlyServes:
    def test_not_ready_and_renewing_is_found(self):
        cluster = AuditedCluster()
        cluster.nodes["n3"] = node_view("n3", is_ready=False)
        assert cluster.audited() == [("warning", "nodeNotReady")]
        ((about, message),) = texts(cluster, "nodeNotReady")
        assert about == "node n3"
        assert "keeps its addresses" in message

    @pytest.mark.parametrize("states", [("ill", "well", "well"), ("absent", "well", "well")])
    def test_without_a_service_proxy_while_the_others_have_one_is_found(self, states):
        cluster = AuditedCluster()
        for node, state in zip(("n3", "n1", "n2"), states, strict=True):
            lease = replace(cluster.leases[node], rules=(PROXY_RULE,), service_proxy=state)
            cluster.leases[node] = lease
        ((about, _message),) = texts(cluster, "serviceProxyDown")
        assert about == "node n3"

    def test_whose_fence_does_not_stand_is_found_unless_none_is_wanted(self):
        cluster = AuditedCluster()
        for node, said in zip(("n1", "n2", "n3"), ("exact", "off", "eth0=otherQdisc"), strict=True):
            cluster.leases[node] = replace(cluster.leases[node], fence=said)
        ((about, message),) = texts(cluster, "fenceIncomplete")
        assert about == "node n3"
        assert "eth0: it has the qdisc ingress" in message

    def test_a_cluster_without_service_proxies_is_in_order(self):
        cluster = AuditedCluster()
        for node, lease in cluster.leases.items():
            cluster.leases[node] = replace(lease, rules=(PROXY_RULE,), service_proxy="absent")
        assert cluster.audited() == []


class TestForgottenTaint:
    TAINT = Taint(DRAINING_TAINTS[1], "", "NoSchedule")

    def cluster(self, **more):
        cluster = AuditedCluster()
        cluster.nodes["n3"] = node_view("n3", taints=(self.TAINT,), **more)
        return cluster

    def test_is_found_after_an_hour(self):
        assert self.cluster(tainted=NOW - HOUR + 1).audited() == []
        cluster = self.cluster(tainted=NOW - 5 * HOUR)
        assert cluster.audited() == [("warning", "forgottenTaint")]
        ((_about, message),) = texts(cluster, "forgottenTaint")
        assert f"{self.TAINT.key}, for 5 h" in message

    def test_is_found_where_its_age_is_unknown(self):
        assert self.cluster().audited() == [("warning", "forgottenTaint")]

    def test_is_none_on_a_node_that_is_going(self):
        assert self.cluster(tainted=NOW - 5 * HOUR, is_ready=False).audited() == []


class TestAllocatorWithoutLeader:
    @pytest.mark.parametrize(
        ("state", "age", "found"),
        [
            (LockState.HELD, 1.0, []),
            (LockState.RELEASED, 2.0, []),
            (LockState.RELEASED, 6.0, [("error", "allocatorWithoutLeader")]),
            (LockState.RELEASED, None, [("error", "allocatorWithoutLeader")]),
            (LockState.EXPIRED, 60.0, [("error", "allocatorWithoutLeader")]),
            (LockState.ABSENT, None, [("error", "allocatorWithoutLeader")]),
        ],
    )
    def test_is_found_unless_the_lock_is_held_or_was_just_released(self, state, age, found):
        cluster = AuditedCluster()
        cluster.lock = replace(cluster.lock, state=state, age=age)
        assert cluster.audited() == found

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"is_present": False}, f"{ALLOCATOR.title} does not exist"),
            ({"pods": ()}, f"{ALLOCATOR.title} has no Pod"),
            ({"pods": (ProgramPod("a", "n1", IMAGE, ("Pod a: Unschedulable",)),)}, "Pod a: Unsch"),
            (
                {},
                f"the Pods of {ALLOCATOR.title} are ready, and this lock is expired",
            ),
        ],
        ids=["none", "no-pod", "pod", "hanging"],
    )
    def test_has_the_reason(self, change, reason):
        cluster = AuditedCluster()
        cluster.lock = replace(cluster.lock, state=LockState.EXPIRED)
        cluster.allocator = replace(cluster.allocator, **change)
        ((about, message),) = texts(cluster, "allocatorWithoutLeader")
        assert about == "Lease purelb-system/purelb-allocator"
        assert f"no Service gets an address: {reason}" in message


class TestVersionsDiffer:
    def test_is_found_for_pods_of_another_image(self):
        cluster = AuditedCluster()
        first, *others = cluster.agents.pods
        cluster.agents = replace(cluster.agents, pods=(replace(first, image="old:1"), *others))
        assert texts(cluster, "versionsDiffer") == [
            (
                "DaemonSet purelb-system/lbnodeagent",
                f"has the image {IMAGE}, and agent-n1 old:1",
            )
        ]

    def test_is_found_for_programs_of_different_images(self):
        cluster = AuditedCluster()
        pods = tuple(replace(pod, image="old:1") for pod in cluster.allocator.pods)
        cluster.allocator = replace(cluster.allocator, image="old:1", pods=pods)
        ((about, message),) = texts(cluster, "versionsDiffer")
        assert about == "DaemonSet purelb-system/lbnodeagent and Deployment purelb-system/allocator"
        assert message == f"have different images: old:1, {IMAGE}"


class TestServicePending:
    def test_is_found_with_the_reason_of_the_refusal(self):
        cluster = AuditedCluster(VIP4)
        cluster.ask(group="nowhere")
        assert cluster.audited() == [("warning", "servicePending")]
        ((about, message),) = texts(cluster, "servicePending")
        assert about == "Service default/new"
        assert message.startswith(
            "has no address: unknown_pool: ServiceGroup nowhere does not exist (unknown pool)"
        )

    def test_names_what_the_event_does_not(self):
        cluster = AuditedCluster(VIP4)
        cluster.ask(explicit=(VIP4,))
        ((_about, message),) = texts(cluster, "servicePending")
        assert message.endswith("; Service default/web has it")

    def test_says_that_no_allocator_leads(self):
        cluster = AuditedCluster()
        cluster.lock = replace(cluster.lock, state=LockState.EXPIRED)
        cluster.ask(age=0.0)
        assert cluster.audited() == [
            ("error", "allocatorWithoutLeader"),
            ("error", "servicePending"),
        ]
        assert texts(cluster, "servicePending")[0][1] == "has no address: no allocator leads"

    @pytest.mark.parametrize(
        ("age", "found"), [(1.0, []), (31.0, [("error", "servicePending")])], ids=["new", "old"]
    )
    def test_without_a_reason_is_found_once_it_should_have_been_served(self, age, found):
        cluster = AuditedCluster()
        cluster.ask(age=age)
        assert cluster.audited() == found

    def test_names_the_family_that_is_missing(self):
        cluster = AuditedCluster()
        cluster.serve(VIP4, families=(4, 6))
        cluster.services[0] = replace(cluster.services[0], requires_dual_stack=True)
        ((_about, message),) = texts(cluster, "servicePending")
        assert message.startswith("has no IPv6 address: ")

    def test_is_none_if_its_group_has_no_such_family_and_one_suffices(self):
        cluster = AuditedCluster()
        only = replace(GROUP, ranges=GROUP.ranges[:1])
        cluster.evidence = replace(cluster.evidence, groups=(only,))
        cluster.serve(VIP4, families=(4, 6))
        assert cluster.audited() == []

    def test_is_none_of_a_class_that_is_not_ours(self):
        cluster = AuditedCluster()
        cluster.ask(load_balancer_class="example.com/other")
        assert cluster.audited() == []

    @pytest.mark.parametrize(
        ("setting", "found"), [("off", []), ("on", ["servicePending"]), ("x", ["servicePending"])]
    )
    def test_without_a_class_depends_on_what_the_allocator_serves(self, setting, found):
        cluster = AuditedCluster()
        environment = {"PURELB_CLAIM_UNCLASSED": setting}
        cluster.allocator = replace(cluster.allocator, environment=environment)
        cluster.ask()
        assert [code for _severity, code in cluster.audited()] == found

    def test_waits_for_the_system_of_its_group(self):
        cluster = AuditedCluster()
        elsewhere = replace(GROUP, ranges=(), source=ExternalSource("ipam", "/x"))
        cluster.evidence = replace(cluster.evidence, groups=(elsewhere,))
        cluster.unready = {"default": "Unreachable: connection refused"}
        cluster.ask()
        assert [code for _severity, code in cluster.audited()] == [
            "servicePending",
            "groupNotReady",
        ]
        assert texts(cluster, "servicePending")[0][1].endswith("Unreachable: connection refused")

    def test_an_address_of_a_node_is_not_given(self):
        cluster = AuditedCluster()
        first = GROUP.ranges[0].first
        only = replace(GROUP, ranges=(replace(GROUP.ranges[0], last=first),))
        cluster.evidence = replace(cluster.evidence, groups=(only,))
        cluster.nodes["n1"] = node_view("n1", addresses=frozenset({first}))
        cluster.ask()
        assert "exhausted" in texts(cluster, "servicePending")[0][1]


@pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
def test_an_address_that_an_agent_found_on_another_host_is_found(vip):
    cluster = AuditedCluster(vip)
    node = rank(NODES, vip)[0]
    cluster.leases[node] = replace(cluster.leases[node], duplicates=(vip,))
    assert cluster.audited() == [("warning", "addressConflict")]
    cluster.leases[node] = replace(cluster.leases[node], duplicates=(ip_address("192.0.2.1"),))
    assert cluster.audited() == []


@pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
class TestNodeAddressMistaken:
    """Another program took the address of a Service for the node's own."""

    def cluster(self, vip, **more):
        cluster = AuditedCluster(vip)
        cluster.nodes["n1"] = node_view("n1", **more)
        return cluster

    def test_is_found_in_the_status_by_the_word_of_the_nodes_agent(self, vip):
        cluster = self.cluster(vip, addresses=frozenset({vip}))
        cluster.leases["n1"] = replace(cluster.leases["n1"], mistaken=(("n1", vip),))
        assert cluster.audited() == [("warning", "nodeAddressMistaken")]
        ((node, text),) = texts(cluster, "nodeAddressMistaken")
        assert node == "node n1"
        assert text.startswith(f"its status lists {vip}, which its agent announces")
        report = cluster.audit()
        assert own_addresses(tuple(cluster.nodes.values()), report.leases) == frozenset()

    def test_is_none_where_its_agent_says_nothing(self, vip):
        cluster = self.cluster(vip, addresses=frozenset({vip}))
        assert cluster.audited() == []
        report = cluster.audit()
        assert own_addresses(tuple(cluster.nodes.values()), report.leases) == {vip}

    def test_is_found_in_an_annotation(self, vip):
        cluster = self.cluster(vip)
        view = replace(cluster.nodes["n1"], annotated={"flannel/public-ip": (vip,)})
        cluster.nodes["n1"] = view
        ((node, text),) = texts(cluster, "nodeAddressMistaken")
        assert node == "node n1"
        assert text == f"its annotation flannel/public-ip has {vip}, the address of a Service"
        # It is no mistake where the node has it.
        own = replace(view.info, addresses=frozenset({vip}))
        cluster.nodes["n1"] = replace(view, info=own)
        assert cluster.audited() == []


class TestGroupRecords:
    def body(self, name="default", spec=None, **status):
        pools = {"v4pool": {"pool": "10.0.0.1-10.0.0.9", "subnet": "10.0.0.0/24"}}
        return {
            "metadata": {"name": name, "namespace": "purelb-system"},
            "spec": spec or {"local": pools},
            "status": {"conditions": [{"type": "Ready", **status}]} if status else {},
        }

    def test_have_no_reason_if_they_are_ready(self):
        seen = group_records_of([self.body(status="True"), self.body("new")])
        assert [group.name for group in seen.valid] == ["default", "new"]
        assert seen.unready == {}

    def test_have_the_reason_of_the_condition(self):
        seen = group_records_of([self.body(status="False", reason="PoolOverlaps", message="m")])
        assert seen.unready == {"default": "PoolOverlaps: m"}
        assert len(seen.valid) == 1

    def test_have_the_field_that_is_wrong(self):
        seen = group_records_of([self.body(spec={"local": {"v4pool": {"pool": "x"}}})])
        assert seen.unready == {"default": "v4pool: subnet is missing"}
        assert seen.valid == ()


def test_a_group_that_is_not_ready_is_found():
    cluster = AuditedCluster()
    cluster.unready = {"default": "PoolOverlaps: m"}
    assert cluster.audited() == [("warning", "groupNotReady")]
    assert texts(cluster, "groupNotReady") == [
        ("ServiceGroup default", "allocates no address: PoolOverlaps: m")
    ]


def test_what_was_to_be_examined_and_was_not_is_an_error():
    cluster = AuditedCluster(VIP4)
    both = frozenset({"nodes", "segment"})
    cluster.evidence = replace(cluster.evidence, examined=both)
    assert cluster.found() == [("error", "segmentNotExamined")]
    cluster.seen = []
    assert cluster.found() == [("error", "nodesNotExamined"), ("error", "segmentNotExamined")]
    cluster.answered(VIP4, b"\x02\0\0\0\0\1")
    cluster.evidence = replace(cluster.evidence, examined=frozenset({"segment"}))
    assert [code for _severity, code in cluster.found()] == []


def test_a_segment_that_no_host_could_probe():
    cluster = AuditedCluster(VIP4, VIP6)
    cluster.answered(VIP4, b"\x02\0\0\0\0\1")
    assert cluster.found() == [("warning", "notProbed")]
    cluster.answered(VIP6, b"\x02\0\0\0\0\1")
    cluster.evidence = replace(cluster.evidence, unasked={"gateway": "no scapy"})
    assert ("warning", "segmentUnread") in cluster.found()


def test_the_segment_need_not_be_asked_without_a_local_address():
    cluster = AuditedCluster()
    cluster.evidence = replace(cluster.evidence, examined=frozenset({"segment"}))
    assert cluster.found() == []


def test_a_range_of_a_subnet_that_the_network_replaces_is_found():
    cluster = AuditedCluster(VIP4)
    cluster.leases = {n: replace(x, deprecated=(NET4,)) for n, x in cluster.leases.items()}
    assert cluster.audited() == [("warning", "subnetDeprecated")]
    ((where, text),) = texts(cluster, "subnetDeprecated")
    assert where == "ServiceGroup default"
    assert "the network replaces the subnet of 172.28.1." in text
    cluster.leases["n1"] = replace(cluster.leases["n1"], deprecated=())
    assert cluster.audited() == []


def test_a_service_without_a_ready_endpoint():
    services = [service("web"), service("other", addresses=())]
    found = list(endpoint_findings(services, ALL_CLASSES, frozenset()))
    assert [(each.code, each.object) for each in found] == [("noEndpoint", "Service default/web")]
    served = frozenset({services[0].key})
    assert not list(endpoint_findings(services, ALL_CLASSES, served))
    assert not list(endpoint_findings(services, ALL_CLASSES, None))


def test_any_endpoint_that_is_not_unready_makes_a_slice_ready():
    assert not is_ready_slice({})
    unready = {"conditions": {"ready": False}}
    assert not is_ready_slice({"endpoints": [unready]})
    assert is_ready_slice({"endpoints": [unready, {"addresses": ["192.0.2.1"]}]})

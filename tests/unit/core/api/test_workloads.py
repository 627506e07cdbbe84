# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import ip_address

import pytest

from purelb.core.api.nodes import node_view_of
from purelb.core.api.workloads import (
    Program,
    ProgramPod,
    Toleration,
    node_of,
    pod_problems,
    program_of,
    program_pod_of,
)
from purelb.core.election.draining import NodeInfo, Taint
from purelb.core.times import parse_time

READY = {"type": "Ready", "status": "True"}


def container(name="lbnodeagent", *, ready=False, last=None, **state):
    return {
        "name": name,
        "ready": ready,
        "state": state,
        "lastState": {"terminated": last} if last else {},
    }


def pod(*containers, conditions=(), meta=None, **status):
    return {
        "metadata": {"name": "agent-1", **(meta or {})},
        "spec": {"nodeName": "n1", "containers": [{"image": "purelb:1"}]},
        "status": {
            "conditions": list(conditions),
            "containerStatuses": list(containers),
            **status,
        },
    }


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        pytest.param(
            container(waiting={"reason": "ImagePullBackOff", "message": "no such host"}),
            "ImagePullBackOff: no such host",
            id="image",
        ),
        pytest.param(
            container(
                waiting={"reason": "CrashLoopBackOff"},
                last={"exitCode": 137, "reason": "OOMKilled"},
            ),
            "CrashLoopBackOff: ended before with exit code 137 (OOMKilled)",
            id="crashing",
        ),
        pytest.param(
            container(terminated={"exitCode": 1, "reason": "Error"}),
            "ended with exit code 1 (Error)",
            id="ended",
        ),
        pytest.param(container(running={}), "runs but is not ready", id="running"),
    ],
)
def test_pod_problems_name_the_container_and_what_is_wrong(status, problem):
    good = container("good", ready=True, running={})
    assert list(pod_problems(pod(status, good))) == [
        f"Pod agent-1, container lbnodeagent: {problem}"
    ]


def test_a_finished_init_container_is_no_problem():
    done = pod(initContainerStatuses=[container("init", terminated={"exitCode": 0})])
    assert list(pod_problems(done)) == []


def test_pod_problems_name_the_scheduling_failure():
    found = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/1 nodes are available",
    }
    assert list(pod_problems(pod(conditions=[found]))) == [
        "Pod agent-1: Unschedulable: 0/1 nodes are available"
    ]


class TestProgramPod:
    def test_has_no_problem_if_it_is_ready(self):
        assert program_pod_of(pod(conditions=[READY])) == ProgramPod("agent-1", "n1", "purelb:1")

    def test_has_one_while_it_is_being_deleted(self):
        ending = pod(conditions=[READY], meta={"deletionTimestamp": "2026-01-01T00:00:00Z"})
        assert program_pod_of(ending).problems == ("Pod agent-1: is being deleted",)

    def test_that_is_not_ready_has_one_even_if_no_container_says_why(self):
        evicted = pod(phase="Failed", reason="Evicted", message="no disk")
        assert program_pod_of(evicted).problems == (
            "Pod agent-1: is not ready (Failed): Evicted: no disk",
        )

    def test_is_of_the_node_that_its_affinity_names_until_it_is_scheduled(self):
        term = {"matchFields": [{"key": "metadata.name", "values": ["n7"]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        assert node_of({"spec": {"affinity": {"nodeAffinity": required}}}) == "n7"
        assert node_of({"spec": {}}) == "no node yet"


def test_program_is_what_its_template_says():
    spec = {
        "containers": [
            {
                "image": "purelb:1",
                "env": [{"name": "A", "value": "on"}, {"name": "B", "valueFrom": {}}],
            },
            {"image": "sidecar:1"},
        ],
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"operator": "Exists"}, {"key": "k", "value": "v", "effect": "NoExecute"}],
    }
    assert program_of({"spec": {"template": {"spec": spec}}}, (), title="T") == Program(
        "T",
        image="purelb:1",
        environment={"A": "on"},
        node_selector={"kubernetes.io/os": "linux"},
        tolerations=(Toleration(operator="Exists"), Toleration("k", "Equal", "v", "NoExecute")),
    )


TAINT = Taint("k", "v", "NoSchedule")
LINUX = {"os": "linux"}


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        (Toleration(operator="Exists"), True),
        (Toleration("k", "Exists"), True),
        (Toleration("k", "Equal", "v"), True),
        (Toleration("k", "Equal", "v", "NoSchedule"), True),
        (Toleration("k", "Equal", "other"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("k", "Exists", effect="NoExecute"), False),
        (Toleration(), False),
    ],
)
def test_toleration_covers_a_taint_as_the_scheduler_says(toleration, covers):
    assert toleration.covers(TAINT) is covers


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (NodeInfo("n", labels=LINUX), ""),
        (NodeInfo("n", labels={"os": "windows"}), "its nodeSelector wants os=linux"),
        (
            NodeInfo("n", labels={"os": "linux"}, taints=(TAINT,)),
            "it does not tolerate the taint k",
        ),
        (NodeInfo("n", labels=LINUX, taints=(Taint("k", "", "PreferNoSchedule"),)), ""),
        (NodeInfo("n", labels=LINUX, taints=(Taint("tolerated", "", "NoExecute"),)), ""),
        (
            NodeInfo(
                "n",
                labels=LINUX,
                taints=(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),),
            ),
            "",
        ),
    ],
    ids=["selected", "not selected", "tainted", "preferred", "tolerated", "cordoned"],
)
def test_program_says_why_it_has_no_pod_on_a_node(node, reason):
    program = Program("T", node_selector=LINUX, tolerations=(Toleration("tolerated", "Exists"),))
    assert program.exclusion(node) == reason


class TestNodeView:
    def node(self, *fields, ready="True"):
        return {
            "metadata": {"name": "n1", "managedFields": list(fields)},
            "status": {"conditions": [{"type": "Ready", "status": ready}]},
        }

    def write(self, time, **fields):
        return {"time": time, "fieldsV1": {"f:spec": fields}}

    def test_knows_when_the_taints_changed_last(self):
        first, second = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"
        made = self.node(
            self.write(first, **{"f:taints": {}}),
            self.write(second, **{"f:taints": {}}),
            self.write("2026-01-03T00:00:00Z", **{"f:podCIDR": {}}),
            {"time": "2026-01-04T00:00:00Z"},
        )
        assert node_view_of(made).tainted == parse_time(second)

    def test_does_not_guess_a_time(self):
        assert node_view_of(self.node()).tainted is None

    def test_says_whether_the_kubelet_is_up(self):
        assert node_view_of(self.node()).is_ready
        assert not node_view_of(self.node(ready="Unknown")).is_ready
        assert not node_view_of({"metadata": {"name": "n1"}}).is_ready

    def test_addresses_in_annotations_are_known_by_their_names(self):
        texts = {
            "projectcalico.org/IPv4Address": "172.28.1.11/24",
            "k3s.io/internal-ip": "172.28.1.11, fd28::11",
            "node.alpha.kubernetes.io/ttl": "0",
            "made": "172.28.1.11,by hand",
        }
        made = node_view_of({"metadata": {"name": "n1", "annotations": texts}})
        own4, own6 = ip_address("172.28.1.11"), ip_address("fd28::11")
        assert made.annotated == {
            "projectcalico.org/IPv4Address": (own4,),
            "k3s.io/internal-ip": (own4, own6),
        }

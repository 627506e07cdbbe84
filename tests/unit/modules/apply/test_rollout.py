# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from purelb.apply.rollout import node_state, rollout_info
from purelb.core.audit.audit import audit
from purelb.core.model import Lease

NOW = 1_000_000.0
NODES = ("n1", "n2", "n3")


def daemon_set(*, updated: int = 3, available: int = 3):
    status = {
        "observedGeneration": 2,
        "desiredNumberScheduled": 3,
        "currentNumberScheduled": 3,
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
    }
    return {"kind": "DaemonSet", "metadata": {"generation": 2}, "status": status}


def pod(node: str, *, revision: str = "new", ready: bool = True, waiting: str = "", **metadata):
    state = {"waiting": {"reason": waiting}} if waiting else {"running": {}}
    return {
        "metadata": {
            "name": f"agent-{node}",
            "namespace": "purelb-system",
            "uid": f"uid-{node}",
            "labels": {"controller-revision-hash": revision},
            **metadata,
        },
        "spec": {"nodeName": node},
        "status": {
            "phase": "Pending" if waiting else "Running",
            "conditions": [{"type": "Ready", "status": str(ready)}],
            "containerStatuses": [{"name": "lbnodeagent", "ready": ready, "state": state}],
        },
    }


def leases(*, nodes=NODES, age: float = 3.0, instance: str = "uid-{}"):
    written = [
        Lease(
            node=node,
            instance=instance.format(node),
            holder=node,
            duration=10.0,
            renew_time=NOW - age,
        )
        for node in nodes
    ]
    return {report.lease.node: report for report in audit(written, (), wall_time=NOW).leases}


def judged(*pods, status=None, known=None):
    by_node = {one["spec"]["nodeName"]: one for one in map(pod, NODES)}
    by_node.update({one["spec"]["nodeName"]: one for one in pods})
    return node_state(
        status or daemon_set(), list(by_node.values()), known or leases(), revision="new"
    )


def test_a_rollout_is_complete_when_every_node_has_its_agent_and_its_lease():
    rollout = judged()
    assert rollout.complete
    assert rollout.done == ["n1", "n2", "n3"]
    assert rollout.reason == "3 of 3 Pods are available"


def test_it_is_not_before_the_last_one_is_available():
    assert not judged(status=daemon_set(available=2)).complete


@pytest.mark.parametrize(
    ("agent", "known", "words"),
    [
        pytest.param(
            pod("n2", deletionTimestamp="now"),
            leases(),
            "the agent of before has not ended (Pod agent-n2)",
            id="is leaving",
        ),
        pytest.param(
            pod("n2", ready=False), leases(), "agent-n2, container lbnodeagent: runs", id="unready"
        ),
        pytest.param(
            pod("n2", ready=False, waiting="ErrImagePull"),
            leases(),
            "agent-n2, container lbnodeagent: ErrImagePull. Give it what it needs to start",
            id="no image",
        ),
        pytest.param(pod("n2"), leases(nodes=["n1", "n3"]), "there is no Lease of it", id="none"),
        pytest.param(
            pod("n2"),
            leases(instance="of before"),
            "its Lease is of another Pod than agent-n2",
            id="lease of the pod before",
        ),
        pytest.param(
            pod("n2"),
            leases(age=60),
            "its Lease was renewed 60 s ago, and lasts 10 s. Look at: kubectl -n purelb-system "
            "logs agent-n2. Compare this machine's clock with the node's, too.",
            id="lease that ended",
        ),
    ],
)
def test_a_node_that_does_not_come_back_is_named_with_a_mend(agent, known, words):
    others = [pod("n1"), pod("n3", revision="old")]
    status = daemon_set(updated=2, available=2)
    rollout = judged(agent, *others, status=status, known=known)
    assert not rollout.complete
    said = rollout.complaint(180)
    assert "have not come further for 180 s: " in said
    assert f"n2: {words}" in said or f"n2: Pod {words}" in said
    assert "Not touched, with the agents of before: n3. Run again when" in said


def test_a_pod_that_fits_on_no_node_is_told_by_the_node_that_it_is_for():
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n2"]}]}
                ]
            }
        }
    }
    unplaced = {
        **pod("n2", ready=False),
        "spec": {"affinity": affinity},
        "status": {
            "phase": "Pending",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "Insufficient cpu",
                }
            ],
        },
    }
    status = daemon_set(updated=1, available=2)
    pods = [unplaced, pod("n1", revision="old"), pod("n3", revision="old")]
    said = node_state(status, pods, leases(), revision="new").complaint(5)
    assert "n2: Pod agent-n2: Unschedulable: Insufficient cpu. Give it" in said
    assert "Not touched, with the agents of before: n1, n3." in said


def test_nodes_are_done_one_by_one():
    status = daemon_set(updated=1, available=3)
    rollout = judged(pod("n1", revision="old"), pod("n3", revision="old"), status=status)
    assert rollout.done == ["n2"]
    assert rollout.reason == "n1: it has the agent of before"
    assert [state.begun for state in rollout.nodes] == [False, True, False]


def test_before_the_first_node_all_are_named():
    status = daemon_set(updated=0)
    rollout = judged(*(pod(node, revision="old") for node in NODES), status=status)
    said = rollout.complaint(5)
    assert "n1: it has the agent of before" in said
    assert "Not touched" not in said


def test_nothing_is_waited_for_in_check_mode():
    params = {"known": [], "wait": True, "wait_timeout": 60, "namespace": "lab"}
    nobody = object()  # it is not even asked
    answer = rollout_info(nobody, params, check_mode=True)
    assert not answer["complete"]
    assert answer["nodes"] == []

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


def state_of(*pods, status=None, known=None):
    by_node = {body["spec"]["nodeName"]: body for body in (*map(pod, NODES), *pods)}
    return node_state(
        status or daemon_set(), list(by_node.values()), known or leases(), revision="new"
    )


def test_a_rollout_is_complete_when_every_node_has_agent_and_lease():
    rollout = state_of()
    assert rollout.complete
    assert rollout.done == ["n1", "n2", "n3"]
    assert rollout.reason == "3 of 3 Pods are available"


def test_a_rollout_is_incomplete_until_the_last_pod_is_available():
    assert not state_of(status=daemon_set(available=2)).complete


@pytest.mark.parametrize(
    ("agent", "known", "words"),
    [
        pytest.param(
            pod("n2", deletionTimestamp="now"),
            leases(),
            "the previous agent has not ended (Pod agent-n2)",
            id="terminating",
        ),
        pytest.param(
            pod("n2", ready=False), leases(), "agent-n2, container lbnodeagent: runs", id="unready"
        ),
        pytest.param(
            pod("n2", ready=False, waiting="ErrImagePull"),
            leases(),
            "agent-n2, container lbnodeagent: ErrImagePull. "
            "See: kubectl -n purelb-system describe pod agent-n2.",
            id="no image",
        ),
        pytest.param(pod("n2"), leases(nodes=["n1", "n3"]), "it has no Lease", id="none"),
        pytest.param(
            pod("n2"),
            leases(instance="previous"),
            "its Lease belongs to another Pod than agent-n2",
            id="lease of the previous pod",
        ),
        pytest.param(
            pod("n2"),
            leases(age=60),
            "its Lease was renewed 60 s ago, and lasts 10 s. See: kubectl -n purelb-system "
            "logs agent-n2. Also compare the clocks of this machine and the node.",
            id="expired lease",
        ),
    ],
)
def test_a_stuck_node_is_named_with_a_remediation(agent, known, words):
    others = [pod("n1"), pod("n3", revision="old")]
    status = daemon_set(updated=2, available=2)
    rollout = state_of(agent, *others, status=status, known=known)
    assert not rollout.complete
    message = rollout.timeout_message(180)
    assert "the rollout has made no progress for 180 s: " in message
    assert f"n2: {words}" in message or f"n2: Pod {words}" in message
    assert "Still with the previous agent: n3. Run again when" in message


def test_an_unscheduled_pod_is_named_by_its_target_node():
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
    message = node_state(status, pods, leases(), revision="new").timeout_message(5)
    assert "n2: Pod agent-n2: Unschedulable: Insufficient cpu. See: kubectl" in message
    assert "Still with the previous agent: n1, n3." in message


def test_nodes_complete_one_by_one():
    status = daemon_set(updated=1, available=3)
    rollout = state_of(pod("n1", revision="old"), pod("n3", revision="old"), status=status)
    assert rollout.done == ["n2"]
    assert rollout.reason == "n1: it runs the previous agent"
    assert [state.begun for state in rollout.nodes] == [False, True, False]


def test_all_nodes_are_named_before_the_first_has_begun():
    status = daemon_set(updated=0)
    rollout = state_of(*(pod(node, revision="old") for node in NODES), status=status)
    message = rollout.timeout_message(5)
    assert "n1: it runs the previous agent" in message
    assert "Still with" not in message


def test_check_mode_does_not_wait():
    params = {"known": [], "wait": True, "wait_timeout": 60, "namespace": "lab"}
    cluster = object()  # not even read
    answer = rollout_info(cluster, params, check_mode=True)
    assert not answer["complete"]
    assert answer["nodes"] == []

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json

import pytest

from purelb.core.audit.lock_findings import lock_findings
from purelb.core.leadership.leader import LeaderRecord
from purelb.core.leadership.locks import (
    LockName,
    annotated_record_of,
    assess_lock,
    lease_spec,
    lock_dict,
    record_of,
)
from purelb.core.names import LEADER_ANNOTATION
from purelb.core.times import format_time

NOW = 1_700_000_000.0
HOUR = 3600.0
LEASE = LockName("Lease", "purelb-system", "purelb-allocator")
ENDPOINTS = LockName("Endpoints", "kube-system", "old")


def meta(*, age=10 * HOUR, **more):
    return {"resourceVersion": "7", "creationTimestamp": format_time(NOW - age), **more}


def lease(renewed=1.0, *, holder="a", held=9 * HOUR, transitions=2, age=10 * HOUR):
    spec = {
        "holderIdentity": holder,
        "leaseDurationSeconds": 15,
        "acquireTime": format_time(NOW - held),
        "renewTime": format_time(NOW - renewed),
        "leaseTransitions": transitions,
    }
    return {"metadata": meta(age=age), "spec": spec}


def annotated(text):
    return {"metadata": meta(annotations={LEADER_ANNOTATION: text})}


OLD = json.dumps(
    {
        "holderIdentity": "b",
        "leaseDurationSeconds": 15,
        "acquireTime": format_time(NOW - HOUR),
        "renewTime": format_time(NOW - 3),
        "leaderTransitions": 1,
    }
)


def codes(name, body):
    return [f.code for f in lock_findings([assess_lock(name, body, wall_time=NOW)])]


@pytest.mark.parametrize(
    ("name", "body", "state", "found"),
    [
        pytest.param(LEASE, lease(), "held", [], id="held"),
        pytest.param(LEASE, lease(renewed=16), "expired", ["lockExpired"], id="expired"),
        pytest.param(
            LEASE, {"metadata": meta(), "spec": {"holderIdentity": "a"}}, "expired",
            ["lockExpired"], id="never-renewed",
        ),
        pytest.param(LEASE, lease(holder=""), "released", [], id="just-released"),
        pytest.param(
            LEASE, lease(renewed=6, holder=""), "released", ["lockFree"], id="left-free"
        ),
        pytest.param(LEASE, {"metadata": {}}, "released", ["lockFree"], id="never-held"),
        pytest.param(LEASE, None, "absent", ["lockAbsent"], id="absent"),
        pytest.param(ENDPOINTS, annotated(OLD), "held", [], id="annotation"),
        pytest.param(
            ENDPOINTS, annotated("[]"), "unreadable", ["lockUnreadable"], id="no-record"
        ),
        pytest.param(
            ENDPOINTS, {"metadata": meta()}, "unreadable", ["lockUnreadable"], id="no-annotation"
        ),
        pytest.param(
            LEASE, lease(held=60, transitions=11), "held", ["lockFlapping"], id="flapping"
        ),
        pytest.param(LEASE, lease(held=60, transitions=10), "held", [], id="once-an-hour"),
        pytest.param(LEASE, lease(held=2 * HOUR, transitions=99), "held", [], id="calm-again"),
        pytest.param(
            LEASE, lease(held=60, transitions=3, age=600), "held", [], id="a-rollout"
        ),
        pytest.param(
            LEASE, lease(renewed=16, held=60, transitions=11), "expired",
            ["lockExpired", "lockFlapping"], id="flapping-and-expired",
        ),
    ],
)  # fmt: skip
def test_a_lock_is_judged_by_the_wall_clock(name, body, state, found):
    assert assess_lock(name, body, wall_time=NOW).state.value == state
    assert codes(name, body) == found


def test_a_finding_names_the_lock_the_holder_and_the_mend():
    (finding,) = lock_findings([assess_lock(LEASE, lease(renewed=16), wall_time=NOW)])
    assert finding.object == "Lease purelb-system/purelb-allocator"
    assert finding.message.startswith("was last renewed 16 s ago by a, with a duration of 15 s")
    assert finding.remediation.startswith("look at the pods")


def test_a_lock_as_plain_data():
    assert lock_dict(assess_lock(ENDPOINTS, annotated(OLD), wall_time=NOW)) == {
        "kind": "Endpoints",
        "namespace": "kube-system",
        "name": "old",
        "holder": "b",
        "state": "held",
        "duration": 15.0,
        "age": 3.0,
        "held_for": HOUR,
        "transitions": 1,
        "transitions_per_hour": 0.1,
        "flapping": False,
    }


def test_nothing_is_known_of_a_lock_that_is_not_there():
    absent = lock_dict(assess_lock(LEASE, None, wall_time=NOW))
    spans = [absent[key] for key in ("age", "held_for", "transitions_per_hour")]
    assert spans == [None, None, None]


def test_written_lease_is_read_back():
    record = LeaderRecord("a", 15.0, NOW, NOW + 0.25, 3, "7")
    assert record_of({"metadata": meta(), "spec": lease_spec(record)}) == record


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"leaseDurationSeconds": "x"}'])
def test_an_annotation_that_is_no_record_is_none(text):
    assert annotated_record_of(annotated(text)) is None


def test_whether_an_allocator_leads_is_not_said_of_its_lock_again():
    (found,) = lock_findings(
        [assess_lock(LEASE, lease(renewed=16, held=60, transitions=11), wall_time=NOW)],
        allocators=LEASE,
    )
    assert found.code == "lockFlapping"

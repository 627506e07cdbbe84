# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The wall clock of one node is wrong: no decision depends on it.

libfaketime changes the wall clock of one agent, also while it runs.
"""

from __future__ import annotations

import time
from datetime import datetime
from pathlib import Path

import pytest

from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import (
    AGENTS,
    CRASH,
    GRACEFUL,
    LEASES,
    agent_pod,
    eventually,
    lease_info,
)
from tests.support.lab.faults import (
    agents_replaced,
    agents_with,
    holders_of,
    longest_of,
    node_with_both_families,
    serve_addresses,
    set_variable,
    wait_until_moved,
    wait_until_returned,
)

pytestmark = [pytest.mark.timeout(150), pytest.mark.safety, pytest.mark.thorough]
SETTLED = 3.0
(FAKETIME,) = Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1")
SKEW = 120


@pytest.fixture
def vips(cluster, make_service):
    return serve_addresses(cluster, make_service)


class Clock:
    """The wall clock of one agent, set by the test; its other clocks stay correct."""

    def __init__(self, folder):
        self.file = folder / "clock"
        self.set(0)

    def set(self, seconds):
        self.file.write_text(f"{seconds:+d}\n")

    def put_into(self, template):
        (container,) = template["containers"]
        for name, value in {
            "LD_PRELOAD": str(FAKETIME),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }.items():
            set_variable(template, name, value)
        for name, path in {"faketime": FAKETIME.parent, "clock": self.file.parent}.items():
            template["volumes"].append({"name": name, "hostPath": {"path": str(path)}})
            mount = {"name": name, "mountPath": str(path), "readOnly": True}
            container["volumeMounts"].append(mount)


def skew_of(lab, node):
    """Return how many seconds a node's Lease is ahead of this machine's clock."""
    renewed = lab.api.get(f"{LEASES}/purelb-node-{node}")["spec"]["renewTime"]
    return datetime.fromisoformat(renewed).timestamp() - time.time()


@pytest.fixture
def clock(cluster, vips, tmp_path):
    clock = Clock(tmp_path)
    node, _own = node_with_both_families(cluster, vips)
    with agents_with(cluster, node, change=clock.put_into):
        yield clock
        clock.set(0)


def test_wrong_clock_of_one_node_changes_no_election(cluster, vips, clock, figure):
    node, own = node_with_both_families(cluster, vips)
    where = holders_of(cluster, *vips)
    wait_until_returned(cluster, node, own, seconds=GRACEFUL)
    figures = []
    for skew in (SKEW, -SKEW):
        with record_holders(cluster, *vips) as holders:
            clock.set(skew)
            # The next renewal, up to 5 s later, is the first with the new time.
            eventually(lambda s=skew: abs(skew_of(cluster, node) - s) < 10, "skew", seconds=CRASH)
            time.sleep(SETTLED)
        assert all(len(holders.sequence(vip)) == 1 for vip in vips)
        codes = {f["code"]: f["object"] for f in lease_info(cluster.kubeconfig)["findings"]}
        code = "clockAhead" if skew > 0 else "leaseExpired"
        assert codes[code] == f"Lease purelb-node-{node}"
        figures.append(survive(cluster, node, own))
    assert holders_of(cluster, *vips) == where
    figure("; ".join(figures))


def survive(lab, node, own):
    """Freeze the agent, then replace it; check the holders of its addresses meanwhile."""
    lab.kill(node, "lbnodeagent", "STOP")
    start = time.monotonic()
    try:
        with record_holders(lab, *own) as frozen:
            wait_until_moved(lab, node, own, seconds=CRASH)
            taken = time.monotonic() - start
    finally:
        lab.kill(node, "lbnodeagent", "CONT")
    with record_holders(lab, *own) as holders:
        wait_until_returned(lab, node, own, seconds=GRACEFUL)
        start = time.monotonic()
        lab.api.delete(f"{AGENTS}/{agent_pod(lab, node)['metadata']['name']}")
        wait_until_moved(lab, node, own, seconds=GRACEFUL)
        left = time.monotonic() - start
        eventually(lambda: agents_replaced(lab), "new agent", seconds=30)
        wait_until_returned(lab, node, own, seconds=GRACEFUL)
        returned = time.monotonic() - start
    assert longest_of(frozen.longest_doubled, own) == 0
    assert longest_of(holders.longest_doubled, own) < 1
    return (
        f"taken {taken:.2f} s after a freeze, {left:.2f} s after a deletion; back {returned:.2f} s"
    )

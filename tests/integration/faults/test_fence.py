# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The fence: addresses of an agent that cannot withdraw them fall silent at the end of its right.

Each test prints figures of this machine; the asserted limits are the contract's.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from datetime import datetime
from ipaddress import ip_address
from pathlib import Path

import pytest

from labkit.errors import Problem
from labkit.net.namespaces import netns
from labkit.probe.pinger import Pinger, longest_gap
from purelb.core.names import FENCED_PROTOCOL
from purelb.core.node.plan import Put
from purelb_agent.node.netlink import Kernel
from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import CRASH, GRACEFUL, LEASES, eventually
from tests.support.lab.faults import (
    longest_of,
    metric_of,
    node_with_both_families,
    replace_agents,
    serve_addresses,
    wait_until_moved,
    wait_until_returned,
)

pytestmark = [pytest.mark.timeout(150), pytest.mark.safety]
EVERY = 0.002
# After so many seconds a pinger has had its first answers.
STARTED = 1.5
# A right ends when the Lease does, but for what clocks may differ by and a frame's time on its way.
CLOCKS, ON_ITS_WAY = 0.999, 0.02
# So much later nothing is heard; others may take over from 20 ms on.
EXACT, UNTIL_OTHERS = 0.005, 0.018
PROGRAMS = {"ingress": ["purelb_in"], "egress": ["purelb_out"]}
REPAIRS = "purelb_lbnodeagent_fence_repairs_total"


@pytest.fixture
def held(cluster, make_service):
    """A node, and an address of each family that it holds."""
    node, own = node_with_both_families(cluster, serve_addresses(cluster, make_service))
    return node, [next(v for v in own if ":" not in v), next(v for v in own if ":" in v)]


def right_ends_at(lab, node):
    """When the right of the last renewal ends, on the monotonic clock."""
    spec = lab.api.get(f"{LEASES}/purelb-node-{node}")["spec"]
    sent_at = datetime.fromisoformat(spec["renewTime"]).timestamp()
    renewed = sent_at - time.time() + time.monotonic()
    return renewed + spec["leaseDurationSeconds"] * CLOCKS - ON_ITS_WAY


def keep_for_long(lab, node, vips):
    """Let the kernel keep addresses, also the witness; they stay the agent's."""

    async def put():
        kernel = Kernel()
        index = next(link.index for link in kernel.links() if link.name == "eth0")
        for one in map(ip_address, vips):
            length = one.max_prefixlen
            preferred = 60 if one.version == 4 else 0
            put = Put(index, one, length, 60, preferred, True, True, is_new=False)
            kernel.put(replace(put, protocol=FENCED_PROTOCOL))
        kernel.close()

    with netns(lab.hosts[node].netns):
        asyncio.run(put())


def programs_on(lab, node, device="eth0"):
    """The names of all filters of an interface, by direction, in their order."""
    found = {}
    for direction in PROGRAMS:
        argv = ["tc", "-json", "filter", "show", "dev", device, direction]
        filters = json.loads(lab.run_in(node, argv).stdout or "[]")
        options = [each["options"] for each in filters if "options" in each]
        found[direction] = [each["prog"]["name"] for each in options if "prog" in each]
    return found


def heard_at_the_end(cluster, node, vips):
    """Return, by address, when it was heard last, in seconds after the end of the right."""
    with Pinger(cluster, *vips, every=EVERY) as pinger:
        time.sleep(STARTED)
        keep_for_long(cluster, node, vips)
        end = right_ends_at(cluster, node)
        time.sleep(max(0.0, end + 0.5 - time.monotonic()))
        times = pinger.stop()
    late = {vip: [t - end for t in times[vip] if EXACT < t - end < UNTIL_OTHERS] for vip in vips}
    before = {vip: max(t - end for t in times[vip] if t - end <= EXACT) for vip in vips}
    return before, late


@pytest.mark.parametrize(
    "attempt",
    [0, *(pytest.param(n, marks=pytest.mark.thorough) for n in range(1, 20))],
)
def test_a_frozen_agents_addresses_fall_silent_at_the_end_of_its_right(
    cluster, held, attempt, figure
):
    """Also if the kernel would keep them for longer."""
    node, own = held
    cluster.kill(node, "lbnodeagent", "STOP")
    try:
        before, late = heard_at_the_end(cluster, node, own)
        wait_until_answered_by_others(cluster, node, own)
    finally:
        cluster.kill(node, "lbnodeagent", "CONT")
    wait_until_returned(cluster, node, own, seconds=GRACEFUL)
    heard = ", ".join(f"{1000 * seconds:.1f} ms" for seconds in before.values())
    figure(f"{attempt}: heard last {heard} after the end of the right (IPv4, IPv6)")
    assert late == {vip: [] for vip in own}
    assert all(seconds > -0.5 for seconds in before.values())
    assert metric_of(cluster, node, "purelb_lbnodeagent_fence_dropped_frames_total") > 0


def wait_until_answered_by_others(lab, node, own):
    """Wait until another node has each address, although this one still has it, silent."""
    others = [name for name in lab.nodes if name != node]

    def on_others():
        locals_ = [json.dumps(lab.addresses(name)) for name in others]
        return all(any(f'"{vip}"' in text for text in locals_) for vip in own)

    eventually(on_others, "takeover", seconds=CRASH)


def test_removed_programs_are_put_back(cluster, held, figure):
    node, own = held
    assert programs_on(cluster, node) == PROGRAMS
    before = metric_of(cluster, node, REPAIRS)
    with Pinger(cluster, *own, every=0.01) as pinger:
        time.sleep(STARTED)
        start = time.monotonic()
        cluster.run_in(node, ["tc", "qdisc", "del", "dev", "eth0", "clsact"])
        eventually(lambda: programs_on(cluster, node) == PROGRAMS, "repair", seconds=5)
        seconds = time.monotonic() - start
        time.sleep(0.5)
        times = pinger.stop()
    gap = max(longest_gap(times[vip], since=start, until=start + seconds) for vip in own)
    figure(f"put back after {seconds:.2f} s, client without answer {gap:.2f} s")
    assert metric_of(cluster, node, REPAIRS) == before + 2
    assert gap < 0.5


@pytest.mark.parametrize("own", ["10.99.0.1/24", "fd99::1/64"], ids=["v4", "v6"])
def test_an_interface_that_is_made_again_is_guarded_again(cluster, held, own):
    """It answers ARP for addresses on another one: under another number after each time."""
    node, _vips = held
    macvlan = ["link", "eth0", "name", "extra0", "type", "macvlan", "mode", "bridge"]
    try:
        for _time in range(2):
            cluster.run_in(node, ["ip", "link", "add", *macvlan])
            cluster.run_in(node, ["ip", "addr", "add", own, "dev", "extra0"])
            cluster.run_in(node, ["ip", "link", "set", "extra0", "up"])
            eventually(
                lambda: programs_on(cluster, node, "extra0")["egress"] == ["purelb_arp"],
                "its program",
                seconds=5,
            )
            cluster.run_in(node, ["ip", "link", "del", "extra0"])
    finally:
        cluster.run_in(node, ["ip", "link", "del", "extra0"], check=False)
    assert programs_on(cluster, node) == PROGRAMS
    eventually(
        lambda: metric_of(cluster, node, "purelb_lbnodeagent_fence_active") == 1, "fence", seconds=5
    )


def test_an_agent_that_ends_leaves_nothing_and_the_next_one_fences_again(cluster, held):
    node, own = held
    cluster.kill(node, "kubelet", "STOP")
    try:
        pid = cluster.kill(node, "lbnodeagent", "TERM")
        eventually(lambda: not Path(f"/proc/{pid}").exists(), "end of the agent", seconds=GRACEFUL)
        assert programs_on(cluster, node) == {"ingress": [], "egress": []}
        wait_until_moved(cluster, node, own, seconds=GRACEFUL)
    finally:
        cluster.kill(node, "kubelet", "CONT")
    wait_until_returned(cluster, node, own, seconds=CRASH)
    assert programs_on(cluster, node) == PROGRAMS


def test_a_killed_agents_fence_is_replaced_without_a_gap(cluster, held, figure):
    node, own = held
    replace_agents(cluster, node)  # so that the kubelet restarts the container without a backoff
    wait_until_returned(cluster, node, own, seconds=GRACEFUL)
    with (
        Pinger(cluster, *own, every=0.005) as pinger,
        record_holders(cluster, *own) as holders,
    ):
        time.sleep(STARTED)
        start = time.monotonic()
        old = cluster.kill(node, "lbnodeagent")
        eventually(lambda: is_replaced(cluster, node, old), "the next agent", seconds=CRASH)
        end = time.monotonic()
        time.sleep(0.5)
        times = pinger.stop()
    gap = max(longest_gap(times[vip], since=start, until=end) for vip in own)
    doubled = longest_of(holders.longest_doubled, own)
    figure(f"client without answer {gap:.3f} s, on two nodes {doubled:.2f} s")
    assert programs_on(cluster, node) == PROGRAMS
    assert gap < 0.5
    assert doubled == 0


def is_replaced(lab, node, old):
    """Whether another agent runs, and has fenced the node."""
    try:
        is_old = lab.pod_pid(node, "lbnodeagent") == old
        return not is_old and metric_of(lab, node, "purelb_lbnodeagent_fence_active") == 1
    except (Problem, OSError):  # no agent runs, or none answers yet
        return False

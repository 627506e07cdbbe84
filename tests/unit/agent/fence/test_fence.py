# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The fence on a kernel that is not there: what is attached, repaired and reported."""

from __future__ import annotations

import errno
import logging
import struct

import pytest
from prometheus_client import CollectorRegistry

from purelb.core.fence.filters import HANDLES, NAME, Filter
from purelb.core.fence.gaps import EXACT, Gap
from purelb.core.fence.hooks import Hook
from purelb.core.fence.plan import FencePlan
from purelb.core.fence.programs import DROPS, ELSEWHERE, FenceProgram
from purelb_agent.fence.fence import RECHECK, AddressFence
from purelb_agent.node.metrics import NodeMetrics
from tests.support.core.snapshots import ETH0, VIP4, VIP6
from tests.support.fence.fake_fence import OTHER, FakeFenceKernel

IN, OUT = Hook(2, is_egress=False), Hook(2, is_egress=True)
BOTH = {IN: FenceProgram.INGRESS, OUT: FenceProgram.EGRESS}
PLAN = FencePlan(BOTH, {VIP4: 2, VIP6: 2}, (), until=50.0)
NOW = 100.0


class Guarded:
    """A fence and its kernel; `guard` gives it a plan."""

    def __init__(self):
        self.kernel = FakeFenceKernel()
        self.registry = CollectorRegistry()
        self.fence = AddressFence(lambda: self.kernel, NodeMetrics(self.registry).fence)
        self.woken = 0
        self.fence.subscribe(self._wake)

    def _wake(self):
        self.woken += 1

    def guard(self, plan=PLAN, *, now=NOW):
        self.fence.guard(plan, (ETH0,), now=now)

    def metric(self, name):
        return self.registry.get_sample_value(f"purelb_lbnodeagent_fence_{name}")


@pytest.fixture
def guarded():
    return Guarded()


def test_addresses_are_guarded_and_programs_attached(guarded):
    guarded.guard()
    assert guarded.kernel.attached == BOTH
    assert guarded.kernel.vips == {VIP4, VIP6}
    assert guarded.fence.said == EXACT
    assert guarded.metric("active") == 1


def test_nothing_is_said_before_the_first_plan(guarded):
    assert guarded.fence.said == ""
    assert guarded.kernel.calls == []


def test_only_changes_are_made(guarded):
    guarded.guard()
    guarded.kernel.calls.clear()
    guarded.guard(now=NOW + 1)
    assert guarded.kernel.calls == []
    guarded.guard(FencePlan(BOTH, {VIP6: 2}, (), until=50.0), now=NOW + 2)
    assert guarded.kernel.calls == ["discard"]
    assert guarded.kernel.vips == {VIP6}


def test_an_address_that_another_node_is_to_have(guarded):
    guarded.guard(FencePlan(BOTH, {VIP4: ELSEWHERE}, (), until=50.0))
    assert guarded.kernel.guarded == {VIP4: ELSEWHERE}
    guarded.guard(FencePlan(BOTH, {VIP4: 2}, (), until=50.0), now=NOW + 1)
    assert guarded.kernel.guarded == {VIP4: 2}
    guarded.guard(FencePlan(BOTH, {}, (), until=50.0), now=NOW + 2)
    assert guarded.kernel.guarded == {}


@pytest.mark.parametrize("taken", [IN, OUT], ids=["in", "out"])
def test_a_program_that_others_remove_is_put_back(guarded, taken):
    guarded.guard()
    guarded.kernel.hooks[taken].clear()
    guarded.kernel.notify()
    assert guarded.woken == 1
    assert guarded.fence.next_at() == NOW + 1
    guarded.guard(now=NOW + 0.5)
    assert guarded.kernel.attached != BOTH
    guarded.guard(now=NOW + 1)
    assert guarded.kernel.attached == BOTH
    assert guarded.fence.next_at() is None
    assert guarded.metric("repairs_total") == 1


def test_what_nobody_tells_is_found_by_looking(guarded):
    guarded.guard()
    guarded.kernel.hooks.clear()
    guarded.guard(now=NOW + RECHECK)
    assert guarded.kernel.attached == BOTH


def test_a_program_gets_before_another_one(guarded):
    guarded.kernel.hooks[OUT].append(OTHER)
    guarded.guard()
    assert [found.name for found in guarded.kernel.hooks[OUT]] == [NAME, OTHER.name]
    guarded.kernel.hooks[OUT].reverse()
    guarded.guard(now=NOW + RECHECK)
    assert [found.name for found in guarded.kernel.hooks[OUT]] == [NAME, OTHER.name]
    assert guarded.fence.said == EXACT


def test_who_cannot_get_before_another_one_says_so(guarded, caplog):
    """A filter of a priority before ours, or a program that runs before all filters."""
    caplog.set_level(logging.INFO)
    guarded.kernel.tcx[IN] = 1
    guarded.guard()
    assert guarded.fence.said == "eth0=behindOther"
    assert guarded.metric("active") == 0
    assert "fenceGap" in caplog.messages
    guarded.kernel.tcx.clear()
    guarded.guard(now=NOW + RECHECK)
    assert guarded.fence.gaps == {}
    assert "fenceGapClosed" in caplog.messages


def test_the_qdisc_of_another_program_is_a_gap(guarded):
    guarded.kernel.with_ingress.add(2)
    guarded.guard()
    assert guarded.fence.gaps == {"eth0": Gap.OTHER_QDISC}
    assert guarded.kernel.attached == {}


def test_a_refusal_is_a_gap_until_the_next_look(guarded):
    guarded.kernel.refuse("attach", errno.EPERM)
    guarded.guard()
    assert guarded.fence.gaps == {"eth0": Gap.REFUSED}
    guarded.kernel.refuse("attach", 0)
    guarded.guard(now=NOW + RECHECK)
    assert guarded.fence.gaps == {}
    assert guarded.kernel.attached == BOTH


def test_an_interface_that_has_just_gone_is_no_gap(guarded):
    guarded.kernel.refuse("attach", errno.ENODEV)
    guarded.guard()
    assert guarded.fence.gaps == {}


def test_an_address_that_finds_no_room_is_no_whole_fence(guarded):
    guarded.kernel.refuse("guard", errno.E2BIG)
    guarded.guard()
    assert guarded.fence.said == "full"
    guarded.kernel.refuse("guard", 0)
    guarded.guard(now=NOW + 1)
    assert guarded.fence.said == EXACT


def test_an_interface_without_ethernet_is_a_gap(guarded):
    guarded.guard(FencePlan(BOTH, {}, ("tun0",), until=50.0))
    assert guarded.fence.gaps == {"tun0": Gap.NOT_ETHERNET}


@pytest.mark.parametrize("handle", HANDLES, ids=hex)
def test_the_program_of_an_earlier_agent_is_replaced(guarded, handle):
    """In its place, so that no frame gets past; its right ends with it."""
    guarded.kernel.hooks[OUT] = [Filter(handle, "bpf", NAME, 5), OTHER]
    guarded.guard()
    assert [found.name for found in guarded.kernel.hooks[OUT]] == [NAME, OTHER.name]
    assert guarded.kernel.hooks[OUT][0].program != 5


def test_an_earlier_agents_program_that_is_not_wanted_is_detached(guarded):
    guarded.kernel.hooks[OUT] = [Filter(HANDLES[0], "bpf", NAME, 5), OTHER]
    guarded.guard(FencePlan({IN: FenceProgram.INGRESS}, {}, (), until=50.0))
    assert guarded.kernel.hooks[OUT] == [OTHER]


def test_an_interface_that_announces_no_more_is_let_go(guarded):
    guarded.guard()
    guarded.guard(FencePlan({OUT: FenceProgram.ARP}, {}, (), until=50.0), now=NOW + 1)
    assert guarded.kernel.attached == {OUT: FenceProgram.ARP}


def test_at_the_end_nothing_is_left_of_this_agent(guarded):
    """What another agent has attached meanwhile is its own."""
    guarded.guard()
    guarded.kernel.hooks[IN] = [Filter(HANDLES[0], "bpf", NAME, 5)]
    guarded.fence.remove()
    assert guarded.kernel.hooks[OUT] == []
    assert [found.program for found in guarded.kernel.hooks[IN]] == [5]
    guarded.fence.close()
    assert guarded.kernel.is_closed


def test_what_cannot_be_detached_is_logged(guarded, caplog):
    guarded.guard()
    guarded.kernel.refuse("detach", errno.EPERM)
    guarded.fence.remove()
    assert "fenceNotDetached" in caplog.messages


def test_dropped_frames_are_counted(guarded):
    guarded.guard()
    assert guarded.metric("dropped_frames_total") == 0
    struct.pack_into("=Q", guarded.kernel.memory, DROPS, 7)
    assert guarded.metric("dropped_frames_total") == 7
    guarded.fence.close()
    assert guarded.metric("dropped_frames_total") == 7


def test_without_bpf_the_node_works_without_a_fence(caplog):
    def refused():
        raise PermissionError(errno.EPERM, "not permitted")

    registry = CollectorRegistry()
    fence = AddressFence(refused, NodeMetrics(registry).fence)
    assert fence.said == "forbidden"
    assert "fenceNotUsed" in caplog.messages
    fence.subscribe(lambda: None)
    fence.guard(PLAN, (ETH0,), now=NOW)
    fence.control.open_until(5.0)
    fence.remove()
    fence.close()
    assert registry.get_sample_value("purelb_lbnodeagent_fence_active") == 0


def test_a_fence_that_is_not_wanted(caplog):
    fence = AddressFence(None, NodeMetrics(CollectorRegistry()).fence)
    fence.guard(PLAN, (ETH0,), now=NOW)
    assert fence.said == "off"
    assert caplog.messages == []

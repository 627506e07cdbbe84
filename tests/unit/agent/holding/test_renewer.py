# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""When the own Lease is renewed, and what the results mean for the right to hold addresses.

A Lease lasts 10 s: it is renewed after 5 s and ends for its node after 7 s.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from itertools import pairwise

import pytest

from purelb.core.fence.gaps import EXACT
from purelb.core.holding.deadline import HoldDeadline
from purelb.core.holding.right import RightState
from purelb.core.settings import TimingChoice
from purelb_agent.holding.renewer import Said
from purelb_agent.kube.client import ApiError
from purelb_agent.runtime import clock
from tests.support.agent.kubernetes_objects import lease_object
from tests.support.agent.leased_node import COLLECTION, DOWN, NETS, NODE, PATH, LeasedNode
from tests.support.agent.logs import Logged


@pytest.fixture
def logged(caplog):
    return Logged(caplog)


@pytest.fixture
async def node():
    return LeasedNode()


def state(node):
    return node.renewer.right.state(clock.now())


def agreement(seconds=10.0):
    return HoldDeadline(clock.now() + seconds, clock.now() + seconds + 3)


class TestFirstWrite:
    async def test_it_waits_for_the_subnets(self, node):
        task = asyncio.create_task(node.renewer.run())
        await asyncio.sleep(3)
        assert node.api.requests == []
        assert state(node) is RightState.ABSENT
        node.renewer.set_subnets(NETS, at_once=True)
        await asyncio.sleep(0.01)
        assert node.written_at == [3.0]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def test_it_says_who_holds_the_lease_and_in_which_epoch(self, node):
        async with node.running():
            lease = node.lease
        assert (lease.node, lease.holder, lease.instance) == ("n1", "n1", "pod-n1")
        assert (lease.subnets, lease.node_uid, lease.duration) == (NETS, "uid-n1", 10.0)
        assert lease.peer_keys == ("key",)
        assert lease.epoch == node.renewer.right.epoch != ""

    async def test_it_gives_the_right_that_the_store_has(self, node):
        async with node.running():
            assert state(node) is RightState.RENEWED
            deadline = node.store.hold_deadline
            assert deadline == node.renewer.right.deadline(clock.now())
            assert deadline.announce_until == node.began + 7.0
            assert node.store.subnets == NETS
            assert node.renewer.right.is_shown
            assert node.metric("lease_healthy") == 1

    async def test_without_a_key_it_has_no_epoch_for_others(self, node):
        node.keys = ()
        async with node.running():
            assert node.lease.epoch == ""
            assert node.store.hold_deadline is not None

    async def test_each_start_has_another_epoch(self, node):
        async with node.running(), (other := LeasedNode()).running():
            assert node.lease.epoch != other.lease.epoch

    async def test_it_may_take_as_long_as_a_right_lasts(self, node):
        for method, path in (("GET", NODE), ("GET", PATH), ("POST", COLLECTION)):
            node.api.hang(method, path)
        async with node.running():
            for method, path in (("GET", NODE), ("GET", PATH), ("POST", COLLECTION)):
                await asyncio.sleep(1.5)
                node.api.resume(method, path)
            await asyncio.sleep(0.01)
            assert state(node) is RightState.RENEWED
            # A second one was sent, and then another one at once, as this one took long.
            assert node.written_at == [3.01, 3.5, 4.51]

    async def test_one_that_fails_is_tried_again(self, node):
        node.refuse(times=1)
        async with node.running():
            assert state(node) is RightState.ABSENT
            assert node.store.hold_deadline is None
            await node.until(2)
            assert node.written_at == [0.0, 2.0]
            (_, failed), (_, written) = node.writes
            assert failed.epoch != written.epoch
            assert state(node) is RightState.RENEWED


class TestRenewals:
    async def test_they_follow_each_other_in_one_epoch(self, node):
        async with node.running():
            await node.until(15)
        assert node.written_at == [0.0, 5.0, 10.0, 15.0]
        assert len({lease.epoch for _at, lease in node.writes}) == 1
        assert node.metric("lease_renewals_total") == 4
        assert node.metric("lease_deadline_used_ratio_count") == 3

    async def test_they_continue_where_each_takes_its_time(self, node):
        async with node.running():
            node.api.hang("PUT", PATH)
            await node.until(5.8)
            node.api.resume("PUT", PATH)
            await node.until(10)
        assert node.written_at == [0.0, 5.0, 10.0]
        # It counts from when it was sent.
        assert node.renewer.right.sent_at == node.began + 10.0

    async def test_a_failed_one_is_tried_again_after_a_pause(self, node, logged):
        async with node.running():
            node.refuse(times=1)
            await node.until(5)
            assert state(node) is RightState.DOUBTFUL
            assert node.renewer.in_doubt.is_set()
            assert node.store.hold_deadline.announce_until == node.began + 7.0
            await node.until(6)
            assert node.written_at == [0.0, 5.0, 6.0]
        assert logged.events.count("leaseRenewalFailed") == 1
        assert node.metric("lease_renewal_failures_total") == 1

    async def test_one_that_succeeds_ends_the_doubt(self, node):
        async with node.running():
            node.refuse(times=1)
            await node.until(5)
            node.renewer.renew_soon()
            await node.until(5.1)
            assert state(node) is RightState.RENEWED
            assert not node.renewer.in_doubt.is_set()
            epochs = {lease.epoch for _at, lease in node.writes}
            assert epochs == {node.renewer.right.epoch}

    async def test_one_that_hangs_is_in_doubt_before_it_fails(self, node):
        async with node.running():
            node.api.hang("PUT", PATH)
            await node.until(5.9)
            assert not node.renewer.in_doubt.is_set()
            await node.until(6)
            assert node.renewer.in_doubt.is_set()
            assert state(node) is RightState.RENEWED
            await node.until(7)
            assert state(node) is RightState.OVER

    async def test_one_is_given_up_when_it_would_give_no_right(self, node, logged):
        async with node.running():
            node.api.answer("PUT", PATH, ApiError(409, "modified"), times=1)
            node.api.hang("PUT", PATH)
            node.api.hang("GET", PATH)
            await node.until(5.5)
            node.api.resume("PUT", PATH)
            await asyncio.sleep(0.01)
            node.api.hang("PUT", PATH)
            await node.until(12)
            assert [r.outcome for r in node.api.sent("GET", PATH)][1:] == ["cancelled"]
        assert logged.fields("leaseRenewalFailed")[0]["error"] == "no answer in time"

    async def test_two_soon_after_each_other_keep_a_pause(self, node):
        async with node.running():
            node.renewer.renew_soon()
            node.renewer.renew_soon()
            await node.until(1)
        assert node.written_at == [0.0, 0.5]


class TestSlowRenewals:
    async def test_a_second_one_is_sent_and_the_first_not_given_up(self, node):
        async with node.running():
            node.api.hang("PUT", PATH)
            await node.until(6.4)
            assert node.written_at == [0.0, 5.0, 6.0]
            assert [request.outcome for request in node.api.sent("PUT")] == ["pending"] * 2
            assert node.renewer.right.failing_since == node.began + 5.0
            node.api.resume("PUT", PATH)
            await node.until(6.5)
            assert state(node) is RightState.RENEWED
            assert node.renewer.right.failing_since is None

    async def test_the_second_one_is_enough_where_the_first_is_lost(self, node):
        async with node.running():
            node.api.answer("PUT", PATH, ApiError(0, "lost"), times=1)
            await node.until(6)
            assert node.written_at == [0.0, 5.0, 6.0]
            assert state(node) is RightState.RENEWED

    async def test_no_more_than_two_are_under_way(self, node):
        async with node.running():
            node.api.hang("PUT", PATH)
            await node.until(30)
            pending = [r for r in node.api.sent("PUT") if r.outcome == "pending"]
        assert len(pending) == 2
        # Each is given up after the time that a right lasts, and followed by another one.
        assert node.written_at == [0.0, 5.0, 6.0, 12.0, 15.5, 19.0, 22.5, 26.0, 29.5]

    async def test_one_that_takes_long_is_followed_sooner(self, node):
        async with node.running():
            node.slow_writes(1.9)
            await node.until(9)
            assert node.renewer.right.sent_at == node.began + 5.0
            assert node.renewer.right.failing_since == node.began + 5.0 + 7.0 - 2 * 1.9
            # The second one, which was sent at 6, is not awaited any more.
            assert node.written_at == [0.0, 6.9]

    async def test_while_renewals_take_long_it_stays_in_doubt(self, node):
        async with node.running():
            node.slow_writes(4.0)
            await node.agree(until=9.5)
            assert node.renewer.right.sent_at == node.began + 5.0
            assert node.renewer.in_doubt.is_set()
            assert await node.renewer.renewed() is None

    async def test_the_outage_is_noted_when_one_is_quick_again(self, node):
        async with node.running():
            first = node.renewer.right.epoch
            node.slow_writes(4.0)
            await node.agree(until=25)
            assert state(node) is RightState.RENEWED
            assert node.renewer.right.epoch == first
            assert node.renewer.outage is None
            node.slow_writes(0.0)
            await node.until(30)
            outage = node.renewer.outage
            # From the last renewal before to the first quick one.
            assert outage.end_time - outage.begin_time == pytest.approx(26.5, abs=0.1)
            assert not node.renewer.in_doubt.is_set()

    async def test_who_is_cut_off_comes_back_with_one_that_is_quick(self, node):
        async with node.running():
            node.slow_writes(4.0)
            cut_off = node.renewer.right.cut_off(is_cut_off=True)
            node.store.holder = replace(node.store.holder, right=cut_off)
            await node.until(6.9)
            for second in range(7, 30):
                await node.until(second)
                assert state(node) is RightState.OVER
            node.slow_writes(0.0)
            await node.until(34)
            assert state(node) is RightState.RENEWED


class TestTiming:
    """Where the installation says nothing of it: three seconds, if the fence is exact."""

    @pytest.fixture
    async def node(self):
        return LeasedNode(TimingChoice())

    @staticmethod
    def durations(node):
        """Of all renewals until now, each with the seconds from the one before."""
        times = [0.0, *node.written_at]
        pauses = [round(b - a, 1) for a, b in pairwise(times)]
        return list(zip(node.durations, pauses, strict=True))

    async def test_it_is_short_as_soon_as_the_fence_is_known_to_be_exact(self, node):
        async with node.running():
            await asyncio.sleep(1)
            node.renewer.say(Said(fence=EXACT))
            await asyncio.sleep(3)
        assert self.durations(node) == [(5, 0.0), (3, 1.5), (3, 1.0), (3, 1.0)]

    async def test_it_is_long_again_when_the_fence_has_a_gap(self, node):
        node.renewer.say(Said(fence=EXACT))
        async with node.running():
            await asyncio.sleep(1.2)
            node.renewer.say(Said(fence="eth0=behindOther"))
            await asyncio.sleep(3.5)
        assert self.durations(node) == [(3, 0.0), (3, 1.0), (5, 0.7), (5, 2.5)]

    async def test_it_is_by_the_number_of_nodes_that_renew_theirs(self, node):
        node.renewer.say(Said(fence=EXACT))
        for number in range(2, 51):
            node.store.leases.put(lease_object(f"n{number}"))
        async with node.running():
            await asyncio.sleep(3)
        assert self.durations(node) == [(5, 0.0), (5, 2.5)]

    async def test_where_writes_take_long_there_is_time_for_them(self, node):
        node.renewer.say(Said(fence=EXACT))
        async with node.running():
            node.slow_writes(1.5)
            await asyncio.sleep(12)
            assert not node.renewer.right.is_in_doubt
        assert set(node.durations[2:]) == {6}

    async def test_so_there_is_where_they_hang(self, node):
        node.renewer.say(Said(fence=EXACT))
        async with node.running():
            node.slow_writes(3.5)
            await asyncio.sleep(10)
            for _second in range(20):
                await asyncio.sleep(1)
                assert state(node) is RightState.RENEWED
        assert set(node.durations[2:]) == {10}

    async def test_when_they_are_fast_again_it_is_short_soon(self, node):
        node.renewer.say(Said(fence=EXACT))
        async with node.running():
            node.slow_writes(3.5)
            await asyncio.sleep(10)
            node.slow_writes(0)
            await asyncio.sleep(10)
        # The first fast one was sent as if it were slow.
        found = self.durations(node)
        last = max(number for number, (duration, _pause) in enumerate(found) if duration == 10)
        assert found[last + 1] == (3, 0.5)
        assert set(found[last + 2 :]) == {(3, 1.0)}


class TestLostRight:
    async def test_it_ends_without_a_renewal(self, node, logged):
        async with node.running():
            node.refuse()
            await node.until(6.9)
            assert node.store.hold_deadline is not None
            await node.until(7)
            assert node.store.hold_deadline is None
            assert state(node) is RightState.OVER
            assert node.metric("lease_healthy") == 0
        states = [fields["state"] for fields in logged.fields("leaseState")]
        assert states == ["renewed", "doubtful", "over"]

    async def test_it_ends_in_time_while_a_request_hangs(self, node):
        async with node.running():
            node.refuse(times=1)
            await node.until(5)
            node.api.hang("PUT", PATH)
            await node.until(7)
            assert node.renewer.right.deadline(clock.now()) is None
            assert node.renewer.right.epoch == ""

    async def test_it_is_back_in_another_epoch(self, node):
        async with node.running():
            first = node.lease.epoch
            node.refuse()
            await node.until(12)
            tried = {lease.epoch for at, lease in node.writes if at >= 7}
            node.accept()
            await node.until(13)
            assert state(node) is RightState.RENEWED
            assert node.renewer.right.epoch == node.lease.epoch
            assert node.lease.epoch not in {first, *tried}
            assert node.renewer.right.is_shown
            assert node.store.hold_deadline is not None

    async def test_no_change_hurries_a_write_while_writes_fail(self, node):
        async with node.running():
            node.refuse()
            await node.until(9.5)
            before = node.written_at
            node.renewer.post("mail")
            await node.until(10)
            assert node.written_at == before
            await node.until(11)
            assert node.lease.mail == "mail"


class TestAgreement:
    async def test_it_extends_the_right(self, node):
        async with node.running():
            node.refuse()
            await node.until(6)
            node.extend(agreed := agreement())
            assert node.store.hold_deadline == replace(agreed, is_agreed=True)
            assert state(node) is RightState.AGREED
            assert node.metric("outage_holding") == 1
            await node.until(15)
            assert state(node) is RightState.AGREED
            assert node.metric("lease_healthy") == 1
            # Between two attempts.
            await node.until(16.1)
            assert state(node) is RightState.OVER
            assert node.store.hold_deadline is None

    async def test_it_restores_no_right(self, node):
        async with node.running():
            node.refuse()
            await node.until(8)
            node.extend(agreement())
            assert node.store.hold_deadline is None

    async def test_the_outage_is_noted_when_it_is_over(self, node):
        async with node.running():
            first = node.lease.epoch
            node.refuse()
            await node.until(6)
            node.extend(agreement())
            await node.until(8)
            node.accept()
            await node.until(9)
            written = [lease for at, lease in node.writes if at >= 9]
            assert [lease.outage is None for lease in written] == [True, False]
            outage = node.lease.outage
            assert outage == node.renewer.outage
            assert outage.end_time - outage.begin_time == pytest.approx(9.0, abs=0.01)
            assert outage.end_time == pytest.approx(clock.wall_time(), abs=0.1)
            assert {lease.epoch for lease in written} == {node.renewer.right.epoch}
            assert node.renewer.right.epoch != first
            assert node.metric("outage_holding") == 0

    async def test_one_within_the_time_of_the_lease_is_none(self, node):
        async with node.running():
            node.refuse(times=1)
            await node.until(5)
            node.extend(agreement())
            node.renewer.renew_soon()
            await node.until(5.1)
            assert state(node) is RightState.RENEWED
            assert node.renewer.outage is None
            assert len({lease.epoch for _at, lease in node.writes}) == 1


class TestRenewed:
    async def test_a_fresh_renewal_says_so(self, node):
        async with node.running():
            asked = len(node.api.requests)
            assert await node.renewer.renewed() == pytest.approx(0.01)
            await node.until(0.4)
            assert await node.renewer.renewed() == pytest.approx(0.41)
            assert len(node.api.requests) == asked

    async def test_one_before_the_asker_failed_does_not(self, node):
        async with node.running():
            await node.until(0.4)
            assert await node.renewer.renewed(node.began) is not None
            node.api.requests.clear()
            assert await node.renewer.renewed(node.began + 0.1) is None
            assert node.api.requests == []

    async def test_after_a_failure_it_does_not(self, node):
        async with node.running():
            node.refuse()
            await node.until(5)
            asked = len(node.api.requests)
            assert await node.renewer.renewed() is None
            assert len(node.api.requests) == asked

    @pytest.mark.parametrize(
        ("answer", "could"), [({}, True), (ApiError(404, "none"), True), (DOWN, False)], ids=str
    )
    async def test_otherwise_it_reads_the_lease_and_writes_nothing(self, node, answer, could):
        async with node.running():
            await node.until(2)
            node.api.answer("GET", PATH, answer)
            node.api.requests.clear()
            assert await node.renewer.renewed() == (pytest.approx(2.01) if could else None)
            assert [(r.method, r.path) for r in node.api.requests] == [("GET", PATH)]

    async def test_a_read_that_hangs_says_it_does_not(self, node):
        async with node.running():
            await node.until(2)
            node.api.hang("GET", PATH)
            asked_at = clock.now()
            assert await node.renewer.renewed() is None
            assert clock.now() - asked_at == pytest.approx(0.5)

    async def test_one_read_answers_all_who_ask_meanwhile(self, node):
        async with node.running():
            await node.until(2)
            node.api.requests.clear()
            node.api.hang("GET", PATH)
            gone = asyncio.create_task(node.renewer.renewed())
            others = [asyncio.create_task(node.renewer.renewed()) for _ in range(3)]
            await asyncio.sleep(0.1)
            gone.cancel()
            node.api.resume("GET", PATH)
            assert None not in await asyncio.gather(*others)
            assert len(node.api.sent("GET", PATH)) == 1
            assert await node.renewer.renewed() is not None
            assert len(node.api.sent("GET", PATH)) == 2

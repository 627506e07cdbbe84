# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Epochs that were left, and what a right rests on."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from purelb.core.holding.deadline import HoldDeadline
from purelb.core.holding.right import Right, RightState, same_start
from purelb.core.settings import LeaseTiming

TIMING = LeaseTiming()
SUBNETS = (ip_network("192.0.2.0/24"), ip_network("2001:db8::/64"))
OTHERS = (ip_network("2001:db8:1::/64"),)
AGREED = HoldDeadline(announce_until=30.0, hold_until=33.0)


def written(right, *, at, subnets=SUBNETS):
    right, renewal = right.sent(subnets, now=at)
    return right.succeeded(renewal, now=at)


def failed(right, *, at, subnets=SUBNETS):
    """A right after a renewal that failed at once, and the epoch in it."""
    right, renewal = right.sent(subnets, now=at)
    return right.failed(renewal, now=at), renewal.epoch


@pytest.fixture
def right():
    """A right by a renewal that was sent at 10, and that a watch has shown."""
    right = written(Right(TIMING, "t"), at=10.0)
    return right.shown(right.epoch, now=10.0)


class TestLeftEpochs:
    def test_a_renewal_in_the_same_epoch_leaves_none(self, right):
        writing, renewal = right.sent(SUBNETS, now=12.0)
        assert renewal.epoch == right.epoch
        assert writing.is_shown
        assert not writing.is_left

    def test_one_that_was_left_is_never_written_again(self, right):
        left, epoch = failed(right, at=12.0, subnets=OTHERS)
        assert left.is_left
        assert left.epoch == right.epoch
        assert failed(left, at=14.0)[1] not in ("", epoch, right.epoch)

    def test_nothing_is_added_in_one_that_was_left(self, right):
        left, _epoch = failed(right, at=12.0, subnets=OTHERS)
        assert left.deadline(12.0) == right.deadline(12.0)
        assert not left.may_add(12.0)

    def test_a_late_word_of_the_watch_does_not_restore_one_that_was_left(self, right):
        left, _renewal = right.sent(OTHERS, now=12.0)
        assert left.shown(right.epoch, now=12.0) is left

    def test_the_next_one_is_not_left(self, right):
        after = written(right, at=12.0, subnets=OTHERS)
        assert not after.is_left
        assert after.shown(after.epoch, now=12.0).may_add(12.0)

    def test_one_that_this_node_did_not_write_is_none_of_its_own(self, right):
        """Who has seen it takes what this node writes with its number for past."""
        after = right.shown("t.999999999", now=12.0)
        assert after.deadline(12.0) == right.deadline(12.0)
        assert not after.may_add(12.0)
        assert after.due_at(12.0) == 12.0
        again = written(after, at=12.0)
        assert not same_start(again.epoch, "t.999999999")
        more = again.shown(f"{again.epoch}0", now=13.0)
        assert [right.epoch, again.epoch, more.epoch] == ["t.1", "t-1.2", "t-2.2"]

    @pytest.mark.parametrize("epoch", ["t.1", "t.2", "u.9", "", "t"])
    def test_what_it_wrote_or_an_earlier_agent_is_no_sign_of_that(self, right, epoch):
        left, _renewal = right.sent(OTHERS, now=12.0)
        assert left.shown(epoch, now=12.0).token == left.token

    def test_the_next_one_is_another_programs_before_this_node_has_sent_it(self, right):
        assert right.shown("t.2", now=12.0).token != right.token

    def test_each_has_another_name_although_the_subnets_are_the_same_again(self, right):
        other = written(right, at=12.0, subnets=OTHERS)
        again = written(other, at=13.0)
        assert len({right.epoch, other.epoch, again.epoch}) == 3

    def test_a_failed_write_in_the_present_one_does_not_skip_one(self, right):
        failing, _epoch = failed(right, at=11.0)
        assert failing.next_number == right.next_number
        assert failed(failing, at=12.0)[1] == right.epoch

    def test_none_is_entered_by_a_write_before_the_failed_one(self, right):
        one, first = right.sent(OTHERS, now=12.0)
        two, second = one.sent(OTHERS, now=12.5)
        failing = two.failed(second, now=12.6)
        assert failing.succeeded(first, now=13.0).epoch == right.epoch

    def test_the_last_one_is_over_when_there_is_no_right(self, right):
        assert Right(TIMING, "t").over == right.over == ""
        lost = right.at(17.0)
        assert lost.over == right.epoch
        failing, _epoch = failed(lost, at=18.0)
        # It may have been written.
        assert failing.over == "t.2" != right.epoch
        assert written(failing, at=19.0).over == ""


class TestState:
    def test_it_is_absent_before_the_first_renewal(self):
        assert Right(TIMING, "t").state(0.0) is RightState.ABSENT

    def test_it_is_held_after_a_renewal(self, right):
        assert right.state(16.9) is RightState.RENEWED

    def test_it_is_doubtful_after_a_failure(self, right):
        failing, _epoch = failed(right, at=12.0)
        assert failing.state(12.0) is RightState.DOUBTFUL
        assert written(failing, at=14.0).state(14.0) is RightState.RENEWED

    def test_it_is_holding_while_there_is_an_agreement(self, right):
        held = failed(right, at=12.0)[0].extended(AGREED, now=12.0)
        assert held.state(12.0) is RightState.AGREED
        assert held.state(29.9) is RightState.AGREED
        assert held.state(30.0) is RightState.OVER

    def test_an_agreement_that_is_over_leaves_what_the_lease_gives(self, right):
        held = right.extended(HoldDeadline(12.0, 15.0), now=11.0)
        assert held.state(12.0) is RightState.RENEWED

    def test_it_is_lost_at_the_renew_deadline(self, right):
        assert right.state(17.0) is RightState.OVER
        assert right.at(17.0).state(17.0) is RightState.OVER

    def test_it_is_held_again_in_another_epoch(self, right):
        again = written(right.at(17.0), at=18.0)
        assert again.state(18.0) is RightState.RENEWED
        assert again.epoch != right.epoch

    def test_it_is_released_for_ever(self, right):
        released = right.released()
        assert released.state(11.0) is RightState.RELEASED
        assert written(released, at=12.0).state(12.0) is RightState.RELEASED
        assert released.extended(AGREED, now=12.0).state(12.0) is RightState.RELEASED

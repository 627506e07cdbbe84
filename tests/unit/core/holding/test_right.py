# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network

import pytest

from purelb.core.holding.deadline import HoldDeadline, is_prolonged
from purelb.core.holding.right import Renewal, Right, RightState
from purelb.core.settings import LeaseTiming

TIMING = LeaseTiming()
SUBNETS = (ip_network("192.0.2.0/24"),)
OTHERS = (ip_network("2001:db8::/64"),)
AGREED = HoldDeadline(announce_until=30.0, hold_until=33.0)


def sent(right, *, at, subnets=SUBNETS):
    return right.sent(subnets, now=at)


def failed(right, *, at, subnets=SUBNETS):
    """A right after a renewal that failed at once."""
    right, renewal = right.sent(subnets, now=at)
    return right.failed(renewal, now=at)


def renewed(right, *, sent_at, now=None, subnets=SUBNETS):
    right, renewal = right.sent(subnets, now=sent_at)
    return right.succeeded(renewal, now=sent_at if now is None else now)


SHORT = LeaseTiming(5, 3.5, 1)


def sent_short(right, *, at):
    return right.sent(SUBNETS, now=at, timing=SHORT)


@pytest.fixture
def right():
    """A right by a renewal that was sent at 10, and that a watch has shown."""
    right = renewed(Right(TIMING, "t"), sent_at=10.0)
    return right.shown(right.epoch, now=10.0)


class TestRight:
    def test_it_counts_from_when_the_renewal_was_sent(self):
        right = renewed(Right(TIMING, "t"), sent_at=10.0, now=11.5)
        deadline = right.deadline(11.5)
        assert (deadline.announce_until, deadline.hold_until) == (17.0, pytest.approx(19.99))
        # What it sent last is through before the others may take over.
        assert deadline.silent_at == pytest.approx(19.97)

    def test_it_ends_before_the_lease_does_for_others_whose_clocks_are_faster(self, right):
        assert right.deadline(10.0).hold_until - 10.0 < TIMING.duration / 1.0005 * 0.9995

    def test_there_is_none_before_the_first_renewal(self):
        right = Right(TIMING, "t")
        assert right.deadline(0.0) is None
        assert right.epoch == ""

    def test_it_ends_at_the_renew_deadline(self, right):
        assert right.at(16.9) is right
        assert right.at(17.0).deadline(17.0) is None

    def test_failures_do_not_shorten_it(self, right):
        assert failed(right, at=12.0).deadline(12.0) == right.deadline(12.0)

    def test_a_renewal_forgets_failures(self, right):
        failing = failed(failed(right, at=12.0), at=13.0)
        assert failing.is_failing
        assert failing.is_in_doubt
        assert failing.failing_since == 12.0
        again = renewed(failing, sent_at=14.0)
        assert (again.is_failing, again.is_in_doubt, again.failing_since) == (False, False, None)

    @pytest.mark.parametrize(
        ("now", "seconds"),
        [(10.1, TIMING.retry_period), (15.0, 1.0), (16.0, 0.5), (16.8, 0.5), (17.0, 2.0)],
    )
    def test_a_failed_renewal_is_tried_again_while_there_is_time(self, right, now, seconds):
        assert failed(right, at=now).due_at(now) == pytest.approx(now + seconds)

    @pytest.mark.parametrize(
        ("now", "seconds"), [(10.1, 3.45), (15.0, 1.0), (16.0, 0.5), (16.8, 0.5), (17.0, 3.5)]
    )
    def test_next_to_one_that_hangs_another_one_is_sent(self, right, now, seconds):
        assert sent(right, at=now)[0].due_at(now) == pytest.approx(now + seconds)

    def test_two_at_a_time_hang_and_put_it_in_doubt(self, right):
        one, _renewal = sent(right, at=15.0)
        assert not one.is_in_doubt
        both, renewal = sent(one, at=16.0)
        assert both.is_in_doubt
        assert both.due_at(16.5) == float("inf")
        # One of them failed: the next one comes when it would have come.
        assert both.failed(renewal, now=16.2).due_at(16.2) == 16.5
        # One was written, and refuses the other one by that.
        after = both.succeeded(renewal, now=16.4)
        assert (after.under_way, after.due_at(16.4), after.is_in_doubt) == ((), 21.0, False)

    def test_a_change_is_written_when_it_is_due(self, right):
        changed = right.changing(13.0).changing(14.0)
        assert changed.due_at(11.0) == 13.0
        assert changed.unchanged().due_at(11.0) == 15.0
        # Not next to a renewal that is under way, and not by a node that has no right.
        hanging = sent(right, at=12.0)[0].changing(12.1)
        assert hanging.due_at(12.1) == 14.5
        assert failed(right.at(17.0), at=17.0).changing(17.1).due_at(17.1) == 19.0
        assert sent(changed, at=13.0)[0].change_at == float("inf")

    def test_a_renewal_may_come_sooner_but_not_at_once_after_another_one(self, right):
        assert right.renewing(10.1).due_at(10.1) == 10.5
        assert right.renewing(12.0).due_at(12.0) == 12.0
        assert right.renewing(16.0).due_at(16.0) == 15.0
        hanging, _renewal = sent(right, at=12.0)
        assert hanging.renewing(12.0) is hanging

    @pytest.mark.parametrize(
        ("took", "after"),
        [(0.0, 5.0), (1.0, 5.0), (1.5, 4.0), (2.0, 3.0), (2.5, 2.5), (4.0, 4.0), (6.0, 6.0)],
    )
    def test_after_a_slow_renewal_the_next_one_has_twice_its_time(self, took, after):
        right = renewed(Right(TIMING, "t"), sent_at=10.0, now=10.0 + took)
        assert right.due_at(10.0 + took) == 10.0 + after

    @pytest.mark.parametrize(("took", "is_quick"), [(0.0, True), (3.4, True), (3.5, False)])
    def test_one_that_takes_half_of_the_time_is_not_quick(self, took, is_quick):
        right = renewed(Right(TIMING, "t"), sent_at=10.0, now=10.0 + took)
        assert right.is_in_doubt is not is_quick
        assert right.can_renew(10.0) is is_quick

    def test_only_a_renewal_sent_since_then_shows_that_it_can_renew(self, right):
        assert right.can_renew(10.0)
        assert not right.can_renew(10.1)
        assert not failed(right, at=11.0).can_renew(10.0)
        assert not Right(TIMING, "t").can_renew(float("-inf"))

    def test_one_that_is_answered_after_its_own_end_gives_none(self):
        assert not renewed(Right(TIMING, "t"), sent_at=10.0, now=17.0).epoch

    def test_one_that_is_answered_after_the_end_of_the_last_one_gives_none(self, right):
        late = renewed(right, sent_at=16.0, now=17.0)
        assert late.at(17.0).deadline(17.0) is None
        assert (late.under_way, late.failing_since, late.due_at(17.0)) == ((), 16.0, 19.0)

    def test_who_leaves_gets_none_again(self, right):
        released = right.released()
        assert released.deadline(10.0) is None
        assert not renewed(released, sent_at=11.0).epoch
        assert released.due_at(11.0) == float("inf")
        assert not failed(released, at=11.0).is_in_doubt


class TestAgreement:
    def test_it_extends_a_right(self, right):
        held = right.extended(AGREED, now=16.0)
        assert held.deadline(20.0) == replace(AGREED, is_agreed=True)
        assert held.at(20.0).epoch == right.epoch

    def test_a_slow_renewal_continues_the_epoch_until_the_lease_ends(self, right):
        held = right.extended(AGREED, now=16.0)
        after = renewed(held, sent_at=16.0, now=19.9)
        assert (after.epoch, after.sent_at) == (right.epoch, 16.0)
        # After that the others may have found the Lease ended.
        late = renewed(held, sent_at=16.0, now=20.0)
        assert (late.epoch, late.sent_at, late.is_failing) == (right.epoch, 10.0, True)

    def test_it_remains_after_a_renewal(self, right):
        held = right.extended(AGREED, now=16.0)
        after = renewed(held, sent_at=16.0, now=19.9)
        assert after.deadline(20.0) == AGREED
        assert after.deadline(28.0) == replace(AGREED, is_agreed=True)
        assert after.state(20.0) is RightState.RENEWED
        assert after.state(23.0) is failed(after, at=20.0).state(20.0) is RightState.AGREED

    def test_it_ends_with_other_subnets(self, right):
        held = right.extended(AGREED, now=16.0)
        assert renewed(held, sent_at=16.0, subnets=OTHERS).agreed is None

    def test_failures_do_not_end_it(self, right):
        held = right.extended(AGREED, now=12.0)
        assert failed(held, at=13.0).deadline(20.0)

    def test_it_never_restores_a_right_that_has_ended(self, right):
        assert right.at(17.0).extended(AGREED, now=17.0).deadline(17.0) is None
        # Neither before `at` has noted the end.
        assert right.extended(AGREED, now=17.0).deadline(17.0) is None

    def test_it_never_shortens_one(self, right):
        held = right.extended(HoldDeadline(12.0, 13.0), now=11.0)
        assert held.deadline(11.5) == right.deadline(11.5)
        assert held.deadline(12.5) == right.deadline(12.5)

    def test_who_holds_by_agreement_adds_nothing(self, right):
        held = right.extended(AGREED, now=16.0)
        assert held.may_add(16.9)
        assert not held.may_add(17.0)


class TestEpochs:
    def test_they_last_while_renewals_follow_each_other(self, right):
        assert renewed(right, sent_at=15.0).epoch == right.epoch

    def test_each_start_of_the_agent_has_its_own(self, right):
        assert renewed(Right(TIMING, "u"), sent_at=10.0).epoch != right.epoch

    def test_they_end_with_the_right(self, right):
        assert renewed(right.at(17.0), sent_at=18.0).epoch not in ("", right.epoch)

    def test_they_end_where_others_may_have_found_the_lease_ended(self, right):
        held = right.extended(AGREED, now=16.0)
        after = renewed(held, sent_at=21.0)
        assert after.epoch not in ("", right.epoch)
        assert after.agreed == AGREED

    def test_they_end_with_other_subnets(self, right):
        assert renewed(right, sent_at=12.0, subnets=OTHERS).epoch != right.epoch

    def test_the_old_one_is_in_use_until_the_new_one_is_written(self, right):
        writing, renewal = sent(right, at=12.0, subnets=OTHERS)
        assert renewal.epoch != writing.epoch == right.epoch
        assert writing.failed(renewal, now=12.0).epoch == right.epoch

    def test_they_end_where_others_deleted_the_lease(self, right):
        deleted = right.deleted(now=11.0)
        assert not deleted.may_add(11.0)
        assert deleted.due_at(11.0) == 11.0
        assert deleted.deleted(now=11.5) is deleted
        assert renewed(deleted, sent_at=12.0).epoch not in ("", right.epoch)

    def test_an_answer_in_another_epoch_gives_no_right(self, right):
        after = right.succeeded(Renewal("t.9", SUBNETS, TIMING, 12.0), now=12.0)
        assert after.deadline(12.0) == right.deadline(12.0)

    def test_one_whose_write_failed_is_never_entered(self):
        writing, renewal = sent(Right(TIMING, "t"), at=10.0)
        failing = writing.failed(renewal, now=11.0)
        assert failing.is_over(renewal.epoch, 12.0)
        assert sent(failing, at=12.0)[1].epoch != renewal.epoch

    def test_one_that_is_being_written_is_not_over(self):
        writing, renewal = sent(Right(TIMING, "t"), at=10.0)
        assert not writing.is_over(renewal.epoch, 10.0)

    def test_none_is_over_while_there_is_a_right(self, right):
        assert not right.is_over("t.0", 10.0)
        assert right.at(17.0).is_over(right.epoch, 17.0)

    def test_nothing_is_put_before_the_own_lease_is_shown_in_it(self):
        right = renewed(Right(TIMING, "t"), sent_at=10.0)
        assert not right.may_add(11.0)
        assert not right.shown("t.0", now=11.0).may_add(11.0)
        assert right.shown(right.epoch, now=11.0).may_add(11.0)


class TestCutOff:
    """A node that has lost its right by itself: the others can renew, and hold what it had."""

    @pytest.fixture
    def lost(self, right):
        return right.cut_off(is_cut_off=True).at(17.0)

    @pytest.mark.parametrize(("took", "is_back"), [(2.5, True), (2.7, False), (5.0, False)])
    def test_it_has_a_right_again_by_a_renewal_that_is_quick_enough_for_the_next(
        self, lost, took, is_back
    ):
        after = renewed(lost, sent_at=18.0, now=18.0 + took)
        assert (after.deadline(18.0 + took) is not None) is is_back
        # The others have seen this epoch.
        assert after.is_failing is not is_back
        assert after.next_number == lost.next_number + 1

    def test_one_that_still_has_its_right_keeps_it(self, right):
        alone = right.cut_off(is_cut_off=True)
        assert renewed(alone, sent_at=12.0, now=16.5).sent_at == 12.0

    def test_where_no_node_can_renew_it_has_one_again_by_any(self, lost):
        after = renewed(lost.cut_off(is_cut_off=False), sent_at=18.0, now=23.0)
        assert after.deadline(23.0).announce_until == 25.0


class TestProlonged:
    BEFORE, AFTER = HoldDeadline(17.0, 20.0), HoldDeadline(22.0, 25.0)

    def test_a_renewal_in_time_prolongs_a_right(self):
        assert is_prolonged(self.BEFORE, self.AFTER, now=12.0)

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (None, AFTER),
            (BEFORE, None),
            (AFTER, BEFORE),
            (replace(BEFORE, is_agreed=True), AFTER),
            (BEFORE, replace(AFTER, is_agreed=True)),
        ],
        ids=["begins", "ends", "gets shorter", "was agreed", "is agreed"],
    )
    def test_all_else_is_more_than_that(self, before, after):
        assert not is_prolonged(before, after, now=12.0)

    def test_so_is_one_after_its_end(self):
        assert not is_prolonged(self.BEFORE, self.AFTER, now=17.0)


class TestDurations:
    """A Lease may say another duration with each renewal."""

    def test_the_right_is_that_of_the_last_renewal(self, right):
        right, renewal = sent_short(right, at=12.0)
        right = right.succeeded(renewal, now=12.1)
        assert right.deadline(12.1) == HoldDeadline(15.5, 12.0 + 5 * 0.999)
        assert (right.timing, right.next_at) == (SHORT, 14.5)
        right, renewal = right.sent(SUBNETS, now=14.5, timing=TIMING)
        assert right.deadline(14.5).announce_until == 15.5
        right = right.succeeded(renewal, now=14.6)
        assert right.deadline(14.6).announce_until == 21.5

    def test_what_a_shorter_one_says_may_be_true_from_when_it_is_sent(self, right):
        """Who has seen no other Lease of the node counts it for no longer."""
        right, renewal = sent_short(right, at=11.0)
        assert right.deadline(11.0) == HoldDeadline(14.5, 11.0 + 5 * 0.999)
        right = right.failed(renewal, now=13.0)
        assert right.deadline(13.0) == HoldDeadline(14.5, 11.0 + 5 * 0.999)
        assert right.deadline(14.5) is None

    def test_so_it_may_while_the_answer_to_one_before_it_comes(self, right):
        right, before = right.sent(SUBNETS, now=11.0)
        right, _short = sent_short(right, at=11.5)
        right = right.succeeded(before, now=11.6)
        assert right.deadline(11.6) == HoldDeadline(15.0, 11.5 + 5 * 0.999)

    def test_another_answer_takes_that_back(self, right):
        right, _renewal = sent_short(right, at=11.0)
        right, renewal = right.sent(SUBNETS, now=12.0, timing=TIMING)
        right = right.succeeded(renewal, now=12.1)
        assert right.deadline(12.1).announce_until == 19.0

    def test_slow_is_what_is_under_way_or_was_answered_late_or_never(self, right):
        assert right.slowness(11.0) == 0.0
        later, renewal = sent(right, at=12.0)
        assert later.slowness(14.5) == 2.5
        assert later.succeeded(renewal, now=15.0).slowness(20.0) == 3.0
        refused = failed(later.failed(renewal, now=15.0), at=15.5)
        assert refused.slowness(20.0) == 3.0
        assert renewed(refused, sent_at=16.0, now=16.1).slowness(20.0) == pytest.approx(0.1)

    def test_one_of_the_same_duration_ends_nothing_sooner(self, right):
        after, _renewal = right.sent(SUBNETS, now=15.0)
        assert after.deadline(15.0) == right.deadline(15.0)

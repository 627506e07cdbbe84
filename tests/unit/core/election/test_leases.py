# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.election.draining import Drained
from purelb.core.election.leases import (
    CONFIRMATION,
    LONG_EXPIRED,
    TRANSITIONS,
    HoldDeadline,
    Membership,
    Renewal,
    RenewalEvent,
    RenewalState,
)
from purelb.core.errors import SettingError
from purelb.core.model import Lease
from purelb.core.settings import LeaseTiming, parse_duration, parse_switch, required

TIMING = LeaseTiming()
WALL = 1_700_000_000.0


def lease(node="a", renewed=WALL, **more):
    return Lease(node=node, holder=node, renew_time=renewed, duration=10.0, **more)


def nodes(membership, now):
    return [member.node for member in membership.live(now)]


def confirmed(membership, now):
    """Live nodes when every end has just been confirmed."""
    return nodes(replace(membership, listed_at=now), now)


class TestRenewal:
    def test_every_state_knows_what_a_stop_means(self):
        stopped = {TRANSITIONS[state, RenewalEvent.STOPPED] for state in RenewalState}
        assert stopped == {RenewalState.RELEASED}

    def test_a_good_renewal_gives_the_right_from_when_it_was_sent(self):
        right = Renewal(TIMING).succeeded(100.0, 100.4).hold_deadline
        assert (right.announce_until, right.hold_until) == (107.0, 110.0)

    def test_the_next_renewal_is_due_after_half_the_duration(self):
        assert Renewal(TIMING).succeeded(100.0, 100.4).next_attempt == 105.0

    def test_a_failure_is_tried_again_and_the_right_stays_for_now(self):
        renewal = Renewal(TIMING).succeeded(100.0, 100.0).failed(105.0)
        assert renewal.state is RenewalState.DOUBTFUL
        assert renewal.next_attempt == 107.0
        assert renewal.hold_deadline is not None

    def test_the_right_ends_at_the_deadline(self):
        renewal = Renewal(TIMING).succeeded(100.0, 100.0).failed(105.0)
        assert renewal.at(106.9).hold_deadline is not None
        assert renewal.at(107.0).state is RenewalState.LOST
        assert renewal.at(107.0).hold_deadline is None

    def test_the_third_failure_ends_the_right_before_the_deadline(self):
        renewal = Renewal(TIMING).succeeded(100.0, 100.0)
        for now in (101.0, 103.0, 105.0):
            renewal = renewal.failed(now)
        assert renewal.state is RenewalState.LOST

    def test_failures_that_peers_asked_for_use_up_no_attempt(self):
        renewal = Renewal(TIMING).succeeded(100.0, 100.0)
        for now in (101.0, 101.5, 102.0, 102.5, 103.0, 103.5, 104.9):
            renewal = renewal.failed(now)
        assert renewal.state is RenewalState.DOUBTFUL
        assert renewal.failed(105.0).state is RenewalState.LOST

    def test_the_first_failure_after_a_renewal_counts_however_soon_it_comes(self):
        renewal = Renewal(TIMING).succeeded(100.0, 100.0).failed(101.0).succeeded(101.1, 101.2)
        assert renewal.failed(101.5).failures == 1

    def test_a_frozen_process_that_wakes_after_the_deadline_has_no_right(self):
        assert Renewal(TIMING).succeeded(100.0, 100.0).at(160.0).hold_deadline is None

    def test_late_response_gives_no_deadline(self):
        assert Renewal(TIMING).succeeded(100.0, 108.0).hold_deadline is None

    def test_a_stopped_renewal_gives_no_right_and_stays_stopped(self):
        stopped = Renewal(TIMING).succeeded(100.0, 100.0).stopped()
        assert stopped.hold_deadline is None
        assert stopped.stopped() == stopped

    def test_a_lost_lease_is_won_back_by_a_renewal(self):
        lost = Renewal(TIMING).succeeded(100.0, 100.0).at(120.0)
        assert lost.succeeded(130.0, 130.1).state is RenewalState.HELD

    def test_the_peers_extend_a_right_that_is_in_doubt(self):
        doubtful = Renewal(TIMING).succeeded(100.0, 100.0).failed(105.0)
        held = doubtful.extended(HoldDeadline(108.5, 110.0))
        assert held.state is RenewalState.HOLDING
        assert held.hold_deadline == HoldDeadline(108.5, 110.0)
        assert held.extended(HoldDeadline(109.5, 111.0)).hold_deadline == HoldDeadline(109.5, 111.0)

    def test_an_extension_never_shortens_a_right(self):
        fresh = Renewal(TIMING).succeeded(100.0, 100.0)
        assert fresh.extended(HoldDeadline(103.0, 105.0)).hold_deadline == fresh.hold_deadline

    def test_failures_do_not_count_while_holding(self):
        held = Renewal(TIMING).succeeded(100.0, 100.0).extended(HoldDeadline(120.0, 121.0))
        for now in (105.0, 107.0, 109.0, 111.0):
            held = held.failed(now)
        assert held.state is RenewalState.HOLDING
        assert held.at(119.9).hold_deadline is not None
        assert held.at(120.0).state is RenewalState.LOST

    def test_lost_lease_is_not_restored_by_peers(self):
        lost = Renewal(TIMING).succeeded(100.0, 100.0).at(120.0)
        assert lost.extended(HoldDeadline(130.0, 131.0)).hold_deadline is None

    def test_a_renewal_ends_the_extension(self):
        held = Renewal(TIMING).succeeded(100.0, 100.0).extended(HoldDeadline(120.0, 121.0))
        back = held.succeeded(118.0, 118.1)
        assert (back.state, back.hold_deadline) == (RenewalState.HELD, HoldDeadline(125.0, 128.0))

    def test_an_attempt_can_be_brought_forward_but_not_put_off(self):
        renewal = Renewal(TIMING).succeeded(100.0, 100.0)
        assert renewal.sooner(102.0).next_attempt == 102.0
        assert renewal.sooner(109.0).next_attempt == 105.0

    @given(
        st.lists(st.tuples(st.booleans(), st.floats(0.0, 6.0), st.floats(0.0, 3.0)), max_size=20)
    )
    def test_no_sequence_gives_a_right_beyond_the_last_good_renewal(self, steps):
        renewal, now, last_sent = Renewal(TIMING), 0.0, None
        for good, pause, travel in steps:
            sent, now = now + pause, now + pause + travel
            if good:
                renewal, last_sent = renewal.at(sent).succeeded(sent, now), sent
            else:
                renewal = renewal.at(sent).failed(now)
            if renewal.hold_deadline is not None:
                assert last_sent is not None
                assert renewal.hold_deadline.hold_until == last_sent + TIMING.duration
                assert now < last_sent + TIMING.renew_deadline


class TestMembership:
    def test_a_lease_counts_from_when_it_was_seen_renewed(self):
        seen = Membership().observe(lease(), now=5.0, wall_time=WALL)
        seen = seen.observe(lease(renewed=WALL + 5), now=10.0, wall_time=WALL + 5)
        assert confirmed(seen, 19.9) == ["a"]
        assert confirmed(seen, 20.0) == []

    @pytest.mark.parametrize("skew", [-120.0, 120.0], ids=["behind", "ahead"])
    def test_the_clock_of_the_node_does_not_matter(self, skew):
        seen = Membership().observe(lease(renewed=WALL + skew), now=0.0, wall_time=WALL)
        seen = seen.observe(lease(renewed=WALL + skew + 5), now=5.0, wall_time=WALL + 5)
        assert confirmed(seen, 14.9) == ["a"]
        assert confirmed(seen, 15.0) == []

    def test_a_lease_first_seen_long_expired_is_dead(self):
        old = lease(renewed=WALL - LONG_EXPIRED - 1)
        assert nodes(Membership().observe(old, now=0.0, wall_time=WALL), 0.0) == []

    def test_a_change_that_is_no_renewal_does_not_revive(self):
        seen = Membership().observe(lease(version="1"), now=0.0, wall_time=WALL)
        seen = seen.observe(lease(version="2"), now=9.0, wall_time=WALL + 9)
        assert confirmed(seen, 10.0) == []

    def test_a_dead_lease_that_is_renewed_is_live_again(self):
        seen = Membership().observe(lease(renewed=WALL - 9999), now=0.0, wall_time=WALL)
        seen = seen.observe(lease(), now=1.0, wall_time=WALL)
        assert nodes(seen, 1.0) == ["a"]

    def test_a_deleted_lease_is_forgotten_at_once(self):
        seen = Membership().observe(lease(), now=0.0, wall_time=WALL)
        assert nodes(seen.forget("a"), 0.0) == []

    def test_list_replaces_all_leases(self):
        seen = Membership()
        for name in "abc":
            seen = seen.observe(lease(name), now=0.0, wall_time=WALL)
        seen = seen.listed([lease("b")], asked_at=0.5, now=0.5, wall_time=WALL)
        assert nodes(seen, 0.5) == ["b"]

    def test_next_expiry_is_the_next_moment_at_which_a_lease_may_count_no_longer(self):
        seen = Membership().observe(lease("a"), now=0.0, wall_time=WALL)
        seen = seen.observe(lease("b"), now=3.0, wall_time=WALL + 3)
        assert [seen.next_expiry(t) for t in (1.0, 10.0, 12.0, 13.0, 15.0)] == [
            10.0,
            12.0,
            13.0,
            15.0,
            None,
        ]

    def test_expiry_needs_confirmation_by_a_list(self):
        seen = Membership().observe(lease(), now=0.0, wall_time=WALL)
        assert not seen.has_unconfirmed_expiry(9.9)
        assert seen.has_unconfirmed_expiry(10.0)
        assert nodes(seen, 10.0) == ["a"]

    def test_a_list_confirms_the_end(self):
        seen = Membership().observe(lease(), now=0.0, wall_time=WALL)
        seen = seen.listed([lease()], asked_at=10.0, now=10.1, wall_time=WALL + 10)
        assert not seen.has_unconfirmed_expiry(10.1)
        assert nodes(seen, 10.1) == []

    def test_a_list_that_was_asked_for_before_the_end_confirms_nothing(self):
        seen = Membership().observe(lease(), now=0.0, wall_time=WALL)
        seen = seen.listed([lease()], asked_at=9.9, now=10.1, wall_time=WALL + 10)
        assert seen.has_unconfirmed_expiry(10.1)

    def test_a_list_that_shows_a_renewal_keeps_the_lease(self):
        seen = Membership().observe(lease(), now=0.0, wall_time=WALL)
        seen = seen.listed([lease(renewed=WALL + 9)], asked_at=10.0, now=10.1, wall_time=WALL + 10)
        assert nodes(seen, 20.0) == ["a"]

    def test_an_end_that_cannot_be_confirmed_counts_after_a_while(self):
        seen = Membership().observe(lease(), now=0.0, wall_time=WALL)
        assert nodes(seen, 10.0 + CONFIRMATION) == []

    def test_a_fresh_lease_is_settled_and_a_stale_one_is_after_its_duration(self):
        fresh = Membership().observe(lease(), now=0.0, wall_time=WALL + 4)
        stale = Membership().observe(lease(), now=0.0, wall_time=WALL + 60)
        assert fresh.settles_at(0.0) is None
        assert stale.settles_at(0.0) == 10.0
        assert stale.settles_at(10.0) is None

    def test_a_stale_lease_is_settled_when_it_is_seen_renewed(self):
        seen = Membership().observe(lease(renewed=WALL - 60), now=0.0, wall_time=WALL)
        seen = seen.observe(lease(renewed=WALL - 55), now=5.0, wall_time=WALL + 5)
        assert seen.settles_at(5.0) is None


class TestRequired:
    def test_a_setting_that_is_there_is_used(self):
        assert required({"X": "y"}, "X", "set it") == "y"

    @pytest.mark.parametrize("mapping", [{}, {"X": ""}])
    def test_a_setting_that_is_missing_is_named_with_the_mend(self, mapping):
        with pytest.raises(SettingError, match="X is not set; set it"):
            required(mapping, "X", "set it")


class TestSwitch:
    @pytest.mark.parametrize(("text", "is_on"), [("on", True), ("off", False), (" on ", True)])
    @pytest.mark.parametrize("default", [True, False])
    def test_it_is_as_it_is_set(self, text, is_on, default):
        assert parse_switch({"X": text}, "X", default=default) is is_on

    @pytest.mark.parametrize("mapping", [{}, {"X": ""}])
    @pytest.mark.parametrize("default", [True, False])
    def test_it_has_its_default_where_it_is_not_set(self, mapping, default):
        assert parse_switch(mapping, "X", default=default) is default

    @pytest.mark.parametrize("text", ["true", "1", "ON", "no"])
    def test_another_word_is_refused_by_name(self, text):
        with pytest.raises(SettingError, match="not a switch; write on or off"):
            parse_switch({"X": text}, "X", default=True)


class TestTiming:
    @pytest.mark.parametrize(
        ("text", "seconds"), [("10s", 10.0), ("500ms", 0.5), ("7", 7.0), ("1.5s", 1.5), ("1m", 60)]
    )
    def test_durations_are_read(self, text, seconds):
        assert parse_duration(text, "X") == seconds

    @pytest.mark.parametrize("text", ["", "ten", "-1s", "5h", "1s 2s", "inf"])
    def test_other_durations_are_refused_by_name(self, text):
        with pytest.raises(SettingError, match="X="):
            parse_duration(text, "X")

    def test_defaults_are_those_of_the_contract(self):
        assert LeaseTiming.parse({}) == LeaseTiming(10.0, 7.0, 2.0)

    @pytest.mark.parametrize(
        ("settings", "rule"),
        [
            ({"PURELB_RENEW_DEADLINE": "10s"}, "RENEW_DEADLINE must be shorter than .*DURATION"),
            ({"PURELB_RETRY_PERIOD": "7s"}, "RETRY_PERIOD must be shorter than .*DEADLINE"),
            ({"PURELB_RETRY_PERIOD": "0s"}, "RETRY_PERIOD"),
            ({"PURELB_LEASE_DURATION": "10500ms"}, "whole seconds"),
            ({"PURELB_LEASE_DURATION": "1s"}, "5 or more"),
        ],
    )
    def test_a_broken_rule_is_named(self, settings, rule):
        with pytest.raises(SettingError, match=rule):
            LeaseTiming.parse(settings)


class TestApiOutage:
    def seen(self, *names, now=0.0):
        membership = Membership(listed_at=now)
        for name in names:
            membership = membership.observe(lease(name), now=now, wall_time=WALL)
        return membership

    def test_no_lease_expires_during_freeze(self):
        frozen = self.seen("a", "b").freeze(6.0)
        assert nodes(frozen, 600.0) == ["a", "b"]
        assert frozen.next_expiry(600.0) is None
        assert not frozen.has_unconfirmed_expiry(600.0)
        assert frozen.freeze(300.0) == frozen

    def test_lease_expired_during_freeze_stays_expired(self):
        frozen = self.seen("a").freeze(6.0)
        assert nodes(frozen, 30.0) == ["a"]
        assert nodes(frozen.unfreeze(), 30.0) == []
        assert self.seen("a").unfreeze() == self.seen("a")

    def test_a_node_that_was_dead_before_stays_dead(self):
        dead = self.seen("a", now=-20.0)
        assert nodes(dead.freeze(6.0), 600.0) == []

    def test_each_node_gets_a_full_duration_when_the_api_is_back(self):
        thawed = self.seen("a").freeze(6.0).resume_expiry(600.0)
        assert confirmed(thawed, 609.9) == ["a"]
        assert confirmed(thawed, 610.0) == []

    def test_the_dead_get_nothing_when_the_api_is_back(self):
        thawed = self.seen("a", now=-20.0).freeze(6.0).resume_expiry(600.0)
        assert nodes(thawed, 600.0) == []

    def test_a_promise_keeps_a_lease_counting_beyond_its_end(self):
        promised = self.seen("a", "b").promise("a", until=15.0, now=5.0)
        assert confirmed(promised, 14.9) == ["a"]
        assert confirmed(promised, 15.0) == []

    def test_a_promise_that_has_ended_is_forgotten(self):
        first = self.seen("a", "b").promise("a", until=15.0, now=5.0)
        second = first.promise("b", until=40.0, now=30.0)
        assert set(second.promises) == {"b"}

    def test_only_a_node_that_takes_part_counts(self):
        membership = self.seen("a")
        assert membership.is_live("a", 5.0)
        assert not membership.is_live("a", 5.0 + TIMING.duration + CONFIRMATION)
        assert not membership.is_live("b", 5.0)

    def test_rejoin_makes_expired_leases_doubtful(self):
        membership = self.seen("old", now=-60.0).observe(lease("new"), now=0.0, wall_time=WALL)
        back = replace(membership, listed_at=30.0).rejoin(since=0.0, now=30.0, patience=2.5)
        assert nodes(back, 30.0) == ["new"]
        assert back.settles_at(30.0) == 32.5
        assert confirmed(back, 32.5) == []

    def test_rejoin_accepts_a_renewed_lease(self):
        back = self.seen("a").rejoin(since=-1.0, now=30.0, patience=2.5)
        renewed = back.observe(lease("a", renewed=WALL + 31), now=31.0, wall_time=WALL + 31)
        assert renewed.settles_at(31.0) is None
        assert nodes(renewed, 40.0) == ["a"]


def test_a_lease_of_another_node_of_that_name_is_not_drained():
    drained = {node: Drained(f"{node}-uid", f"taint of {node}") for node in "abc"}
    membership = Membership()
    for one in (
        lease("a", node_uid="old-uid"),
        lease("b", node_uid="b-uid"),
        lease("c"),
        lease("d"),
    ):
        membership = membership.observe(one, now=0.0, wall_time=WALL)
    found = {member.node: member.taint for member in membership.live(1.0, drained)}
    assert found == {"a": "", "b": "taint of b", "c": "taint of c", "d": ""}

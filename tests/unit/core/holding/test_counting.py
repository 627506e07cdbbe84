# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.holding.counted_lease import ASKED_AGAIN, ASKED_BEFORE, Check
from purelb.core.holding.counting import Counting
from purelb.core.model import Lease
from tests.support.core.snapshots import NET4, NET6


def lease(node="b", renewed=1.0, epoch="b.1", **more):
    return Lease(node, holder=node, epoch=epoch, renew_time=renewed, duration=10.0, **more)


@pytest.fixture
def counting():
    """The Leases of `b` and `c`, both seen at 0, so both count until 10."""
    counting = Counting().observe(lease(), now=0.0)
    return counting.observe(lease("c", epoch="c.1"), now=0.0)


def counted(counting, now):
    return [node for node, each in counting.at(now).leases.items() if each.counts]


def checked(counting, node="b", *, now, checks=tuple(Check)):
    for check in checks:
        counting = counting.found(node, check, asked_at=now)
    return counting


class TestNear:
    """Nodes with a subnet of this observer, which has NET4; `b` has it, too, and `c` has NET6."""

    @pytest.fixture
    def counting(self):
        counting = Counting().seen_from((NET4,)).observe(lease(subnets=(NET4,)), now=0.0)
        return counting.observe(lease("c", epoch="c.1", subnets=(NET6,)), now=0.0)

    def test_of_others_no_node_is_asked(self, counting):
        assert counting.near() == ("b",)
        assert counting.checks(9.9) == {"b": Check.ASK_NODE}
        assert counting.checks(10.0)["c"] is Check.READ
        checks = [Check.READ]
        assert counted(checked(counting, "c", now=10.0, checks=checks), 10.0) == ["b"]
        assert counted(checked(counting, "b", now=10.0, checks=checks), 10.0) == ["b", "c"]

    def test_while_the_own_subnets_are_not_known_all_are_near(self, counting):
        counting = counting.seen_from(None)
        assert counting.near() == ("b", "c")
        assert set(counting.checks(9.9)) == {"b", "c"}

    def test_the_end_of_one_that_comes_near_is_found_out_again(self, counting):
        counting = checked(counting, "c", now=10.0).at(10.0)
        assert not counting.is_live("c")
        assert counting.seen_from((NET4, NET6)).checks(10.0)["c"] is Check.ASK_NODE
        assert counting.seen_from((NET4, NET6)).is_live("c")
        assert not counting.seen_from((NET4,)).is_live("c")

    def test_the_end_of_one_that_stays_near_is_believed(self, counting):
        counting = checked(counting, now=10.0).at(10.0)
        assert not counting.seen_from((NET4, NET6)).is_live("b")

    def test_others_are_not_told_of_the_ends_of_those_that_are_not(self, counting):
        counting = checked(checked(counting, "c", now=10.0), now=10.0).at(10.0)
        assert counting.ends() == {"b": "b.1"}

    def test_who_may_have_promised_a_node_is_near_to_it(self, counting):
        counting = counting.observe(lease("d", epoch="d.1", subnets=(NET4, NET6)), now=0.0)
        counting = counting.observe(lease("e", epoch="", subnets=(NET6,)), now=0.0)
        assert counting.near_to(counting.leases["c"].lease) == ("d",)
        assert counting.near_to(counting.leases["d"].lease) == ("b", "c")


class TestEnd:
    def test_time_alone_does_not_end_a_lease(self, counting):
        assert counted(counting, 1000.0) == ["b", "c"]

    def test_it_ends_once_nothing_is_left_to_find_out(self, counting):
        assert counted(checked(counting, now=10.0), 10.0) == ["c"]

    @pytest.mark.parametrize("missing", list(Check))
    def test_each_check_is_needed(self, counting, missing):
        done = [check for check in Check if check is not missing]
        counting = checked(counting, now=10.0, checks=done)
        assert counted(counting, 10.0) == ["b", "c"]
        assert counting.checks(10.0)["b"] is missing

    def test_its_node_is_asked_shortly_before(self, counting):
        assert counting.checks(10.0 - ASKED_BEFORE - 0.01) == {}
        assert counting.checks(10.0 - ASKED_BEFORE)["b"] is Check.ASK_NODE

    def test_it_is_read_after_its_end_and_the_others_are_asked_after_that(self, counting):
        counting = counting.found("b", Check.ASK_NODE, asked_at=9.8)
        assert "b" not in counting.checks(9.9)
        assert counting.found("b", Check.READ, asked_at=9.9).checks(10.0)["b"] is Check.READ
        counting = counting.found("b", Check.READ, asked_at=10.1)
        assert counting.checks(10.1)["b"] is Check.ASK_OTHERS
        assert counted(counting.found("b", Check.ASK_OTHERS, asked_at=10.2), 10.2) == ["c"]

    def test_agents_without_epochs_are_not_asked(self):
        counting = Counting().observe(lease(epoch=""), now=0.0)
        assert counting.checks(9.9) == {}
        assert counting.checks(10.0) == {"b": Check.READ}
        assert counted(checked(counting, now=10.0, checks=[Check.READ]), 10.0) == []

    def test_a_renewal_that_a_read_shows_is_no_end(self, counting):
        counting = checked(counting.observe(lease(renewed=2.0), now=10.5), now=10.5)
        assert counted(counting, 10.5) == ["b", "c"]

    def test_who_renews_after_the_end_counts_again(self, counting):
        ended = checked(counting, now=10.0).at(10.0)
        assert counted(ended.observe(lease(renewed=2.0), now=11.0), 11.0) == ["b", "c"]

    def test_who_may_not_know_this_observer_is_asked_again(self, counting):
        ended = checked(counting, now=10.0).at(10.0)
        again_at = 10.0 + ASKED_AGAIN
        assert ended.next_at(10.0) == again_at
        assert "b" not in ended.checks(again_at - 0.1)
        assert ended.checks(again_at)["b"] is Check.ASK_NODE
        silent = ended.found("b", Check.ASK_NODE, asked_at=again_at)
        assert "b" not in silent.checks(again_at)
        assert counted(silent, again_at) == ["c"]

    def test_of_those_that_do_not_count_nobody_else_is_asked(self, counting):
        renewed = counting.observe(lease(renewed=2.0), now=0.5)
        known = checked(renewed, now=10.5).at(10.5)
        assert counted(known, 10.5) == ["c"]
        over = checked(counting, now=10.0).at(10.0).said_over("b", "b.1")
        for each in (known, over):
            assert "b" not in each.checks(20.0)

    def test_nothing_changes_while_nothing_happens(self, counting):
        assert counting.at(5.0) is counting


class TestRenewals:
    def test_each_counts_from_when_it_was_seen(self, counting):
        assert counting.observe(lease(renewed=2.0), now=5.0).leases["b"].until == 15.0

    def test_a_label_is_no_renewal(self, counting):
        assert counting.observe(lease(version="9"), now=5.0).leases["b"].until == 10.0

    def test_a_shorter_duration_does_not_end_the_one_before(self, counting):
        short = replace(lease(renewed=2.0), duration=5.0)
        assert counting.observe(short, now=1.0).leases["b"].until == 10.0


class TestWhatNodesSay:
    def test_who_has_a_right_counts_until_it_ends(self, counting):
        counting = checked(counting.has_right("b", seconds=4.0, now=9.8), now=10.0)
        assert counted(counting, 10.0) == ["b", "c"]
        assert counted(checked(counting, now=13.8), 13.8) == ["c"]

    def test_a_shorter_right_changes_nothing(self, counting):
        assert counting.has_right("b", seconds=1.0, now=5.0).leases["b"].until == 10.0

    def test_who_has_one_after_its_end_was_out_of_reach_and_counts_again(self, counting):
        ended = checked(counting, now=10.0).at(10.0)
        again = ended.has_right("b", seconds=4.0, now=11.0)
        assert counted(again, 11.0) == ["b", "c"]
        assert again.checks(15.0 - ASKED_BEFORE) == {"c": Check.ASK_NODE, "b": Check.ASK_NODE}
        assert counted(checked(again, now=15.0), 15.0) == ["c"]

    def test_who_says_that_its_epoch_is_over_does_not_count_in_it(self, counting):
        over = counting.said_over("b", "b.1")
        assert counted(over, 1.0) == ["c"]
        assert over.epochs() == {"c": "c.1"}
        assert "b" not in over.checks(10.0)
        again = over.observe(lease(renewed=2.0, epoch="b.2"), now=2.0)
        assert again.epochs() == {"b": "b.2", "c": "c.1"}

    def test_whose_epoch_is_over_needs_no_promise_any_more(self, counting):
        promised = counting.promise("b", until=20.0)
        assert promised.said_over("b", "b.0").promises == {"b": 20.0}
        assert promised.said_over("b", "b.1").promises == {}

    def test_a_late_word_about_an_older_epoch_changes_nothing(self, counting):
        over = counting.said_over("b", "b.1").said_over("b", "b.0")
        assert counted(over, 1.0) == ["c"]

    def test_an_epoch_may_be_over_before_it_is_seen(self, counting):
        counting = counting.said_over("b", "b.2")
        assert counted(counting.observe(lease(renewed=2.0, epoch="b.2"), now=2.0), 2.0) == ["c"]
        later = counting.observe(lease(renewed=2.0, epoch="b.3"), now=2.0)
        assert counted(later, 2.0) == ["b", "c"]

    def test_nor_in_those_before(self, counting):
        promised = counting.promise("b", until=20.0)
        over = promised.said_over("b", "b.1").said_over("b", "b.3")
        assert counted(over, 1.0) == ["c"]
        assert over.promises == {}
        late = over.observe(lease(renewed=2.0, epoch="b.2"), now=2.0)
        assert counted(late, 2.0) == ["c"]

    def test_one_of_another_start_takes_back_nothing(self, counting):
        over = counting.said_over("b", "b.1")
        assert over.said_over("b", "x.1") is over
        assert counted(counting.said_over("b", "x.1"), 1.0) == ["b", "c"]

    @pytest.mark.parametrize(("past", "present"), [("b.1", "b.2"), ("b.9", "b.10"), ("b.1", "x.1")])
    def test_a_past_epoch_says_nothing_of_who_is_in_another_one(self, counting, past, present):
        counting = counting.observe(lease(renewed=1.5, epoch=past), now=1.5).said_over("b", past)
        counting = counting.observe(lease(renewed=2.0, epoch=present), now=2.0)
        assert counting.observe(lease(renewed=0.5, epoch=past), now=4.0) is counting
        ended = checked(counting, now=12.0).at(12.0)
        restored = ended.observe(lease(renewed=0.5, epoch=past), now=12.0)
        assert restored.leases["b"].lease.epoch == past

    @pytest.mark.parametrize("epoch", ["b.3", "x.1", "", "b"])
    def test_any_other_epoch_is_a_later_one(self, counting, epoch):
        counting = counting.said_over("b", "b.1").observe(lease(renewed=2.0, epoch="b.2"), now=2.0)
        later = counting.observe(lease(renewed=3.0, epoch=epoch), now=3.0)
        assert later.leases["b"].lease.epoch == epoch

    def test_an_end_that_others_believe_lasts_until_a_renewal(self, counting):
        ended = counting.ended("b", "b.1", now=1.0)
        assert counted(ended, 1.0) == ["c"]
        assert counted(ended.observe(lease(renewed=2.0), now=2.0), 2.0) == ["b", "c"]
        assert counting.ended("b", "b.0", now=1.0) is counting
        assert ended.ended("b", "b.1", now=1.0) is ended

    def test_an_own_promise_comes_before_what_others_believe(self, counting):
        promised = counting.promise("b", until=7.0)
        assert promised.ended("b", "b.1", now=6.9) is promised
        assert not promised.ended("b", "b.1", now=7.0).is_live("b")

    def test_whom_another_promised_to_count_counts_though_its_end_was_believed(self, counting):
        ended = checked(counting, now=10.0).at(10.0)
        promised = ended.with_promised((("b", 5.0), ("x", 5.0)), now=11.0)
        assert counted(promised, 15.9) == ["b", "c"]
        assert promised.checks(16.0)["b"] is Check.ASK_NODE
        assert ended.with_promised((), now=11.0) is ended
        assert counting.with_promised((("b", 8.0),), now=1.0) is counting

    def test_whom_another_promised_to_count_counts_until_the_promise_ends(self, counting):
        promised = counting.with_promised((("b", 12.0),), now=1.0)
        assert counted(checked(promised, now=10.0), 10.0) == ["b", "c"]
        assert "b" not in promised.checks(12.5)
        assert promised.checks(12.6)["b"] is Check.ASK_NODE

    def test_the_end_of_one_that_is_heard_is_found_out_again(self, counting):
        ended = checked(counting, now=10.0).at(10.0)
        heard = ended.heard("b", now=11.0)
        assert counted(heard, 11.0) == ["b", "c"]
        assert heard.checks(11.0)["b"] is Check.ASK_NODE
        assert counted(checked(heard, now=11.0), 11.0) == ["c"]
        assert counting.heard("b", now=1.0) is counting

    def test_whose_epoch_is_over_does_not_count_by_what_others_promised(self, counting):
        over = counting.said_over("b", "b.1")
        assert not over.with_promised((("b", 50.0),), now=1.0).is_live("b")

    def test_a_promise_is_kept_until_it_ends(self, counting):
        promised = counting.promise("b", until=7.0)
        assert promised.at(6.9).promises == {"b": 7.0}
        assert promised.at(7.0).promises == {}

    def test_it_says_how_long_its_promises_last(self, counting):
        promised = counting.promise("c", until=9.0).promise("b", until=7.0)
        assert promised.promised(3.0) == (("b", 4.0), ("c", 6.0))
        assert promised.promised(7.0) == (("c", 2.0),)

    @pytest.mark.parametrize(
        "change", ["said_over", "ended", "has_right", "heard", "found", "promise", "deleted"]
    )
    def test_nothing_is_known_of_a_stranger(self, counting, change):
        changed = {
            "said_over": lambda: counting.said_over("x", "x.1"),
            "ended": lambda: counting.ended("x", "x.1", now=1.0),
            "has_right": lambda: counting.has_right("x", seconds=9.0, now=1.0),
            "heard": lambda: counting.heard("x", now=1.0),
            "found": lambda: counting.found("x", Check.READ, asked_at=1.0),
            "promise": lambda: counting.promise("x", until=9.0) or counting,
            "deleted": lambda: counting.deleted("x"),
        }[change]()
        assert changed is counting


class TestPromises:
    def test_who_was_promised_counts_for_so_long(self, counting):
        promised = counting.promise("b", until=17.0)
        assert promised.promises == {"b": 17.0}
        assert promised.leases["b"].until == 17.0

    def test_they_are_forgotten_when_they_are_over(self, counting):
        assert counting.promise("b", until=17.0).at(17.0).promises == {}

    def test_whose_lease_has_ended_here_gets_none(self, counting):
        assert checked(counting, now=10.0).at(10.0).promise("b", until=17.0) is None
        ended = checked(counting, now=10.0).at(10.0)
        assert ended.promise("b", until=17.0, listed=False) is None

    def test_before_the_leases_are_listed_everybody_gets_one(self):
        promised = Counting().promise("b", until=17.0, listed=False)
        assert promised.promises == {"b": 17.0}
        assert promised.observe(lease(), now=1.0).leases["b"].until == 17.0
        assert promised.observe(lease(), now=9.0).leases["b"].until == 19.0


class TestDeletedLeases:
    def test_one_without_an_epoch_that_is_deleted_is_gone_at_once(self):
        counting = Counting().observe(replace(lease(), epoch=""), now=0.0)
        assert not counting.deleted("b").leases

    def test_one_that_others_deleted_counts_to_its_end(self, counting):
        deleted = counting.deleted("b")
        assert counted(deleted, 1.0) == ["b", "c"]
        assert set(checked(deleted, now=10.0).at(10.0).leases) == {"c"}

    def test_one_that_is_back_is_as_before(self, counting):
        back = counting.deleted("b").observe(lease(), now=1.0)
        assert not back.leases["b"].is_deleted

    def test_who_checks_no_ends_forgets_one_when_it_was_not_renewed_in_time(self, counting):
        deleted = counting.deleted("b")
        assert deleted.without_deleted(9.9) is deleted
        assert set(deleted.without_deleted(10.0).leases) == {"c"}
        assert counting.without_deleted(10.0) is counting

    def test_who_leaves_says_so_first(self, counting):
        released = counting.observe(replace(lease(), holder=""), now=1.0)
        assert counted(released, 1.0) == ["c"]
        assert set(released.deleted("b").leases) == {"c"}

    def test_the_last_state_that_comes_with_the_deletion_counts(self, counting):
        gone = counting.deleted("b", last=replace(lease(), holder=""))
        assert set(gone.leases) == {"c"}

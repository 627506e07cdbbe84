# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What others read from a Counting: members, epochs that are over, duplicates, the next check."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from purelb.core.holding.counted_lease import ASKED_BEFORE, Check
from purelb.core.holding.counting import Counting
from purelb.core.model import Lease

NETS = (ip_network("192.0.2.0/24"), ip_network("2001:db8::/64"))
FOUND = (ip_address("192.0.2.1"), ip_address("2001:db8::1"))


def lease(node="b", renewed=1.0, **more):
    """A Lease of 10 s with an epoch; `epoch=""`: of an agent that writes none."""
    more = {"holder": node, "epoch": f"{node}.1", "duration": 10.0, **more}
    return Lease(node, NETS, renew_time=renewed, **more)


def seen(*leases, now=0.0):
    counting = Counting()
    for each in leases:
        counting = counting.observe(each, now=now)
    return counting


def ended(counting, node, *, now):
    for check in Check:
        counting = counting.found(node, check, asked_at=now)
    return counting.at(now)


@pytest.fixture
def counting():
    """The Leases of `c` and `b`, both seen at 0."""
    return seen(lease("c"), lease("b"))


class TestCounted:
    def nodes(self, counting):
        return {lease.node for lease in counting.counted()}

    def test_are_the_leases_as_seen_last(self, counting):
        renewed = lease("b", 2.0)
        counting = counting.observe(renewed, now=1.0)
        assert {found.node: found for found in counting.counted()}["b"] == renewed
        assert self.nodes(counting) == {"b", "c"}

    def test_who_does_not_count_is_none(self, counting):
        assert self.nodes(counting.said_over("b", "b.1")) == {"c"}
        assert self.nodes(ended(counting, "c", now=10.0)) == {"b"}

    def test_who_does_not_check_ends_goes_by_time(self, counting):
        counting = counting.observe(lease("b", 2.0), now=5.0)
        assert [found.node for found in counting.renewed(9.9)] == ["b", "c"]
        assert [found.node for found in counting.renewed(10.0)] == ["b"]
        assert list(counting.renewed(15.0)) == []

    def test_one_that_does_not_count_is_not_renewed(self):
        assert list(seen(lease()).said_over("b", "b.1").renewed(1.0)) == []


class TestNextAt:
    def test_it_is_a_moment_before_the_end_and_then_the_end(self, counting):
        counting = counting.observe(lease("b", 2.0), now=5.0)
        assert counting.next_at(0.0) == 10.0 - ASKED_BEFORE
        assert counting.next_at(10.0 - ASKED_BEFORE) == 10.0
        assert counting.next_at(10.0) == 15.0 - ASKED_BEFORE

    def test_there_is_none_without_a_lease_that_ends(self, counting):
        assert Counting().next_at(0.0) is None
        assert counting.next_at(10.0) is None

    def test_one_that_does_not_count_is_not_waited_for(self):
        assert seen(lease()).said_over("b", "b.1").next_at(0.0) is None


class TestIsLive:
    def test_who_counts_is_live(self, counting):
        assert counting.is_live("b")

    def test_who_does_not_is_not(self, counting):
        assert not counting.said_over("b", "b.1").is_live("b")
        assert not counting.is_live("x")


class TestOver:
    def test_nothing_is_over_while_all_count(self, counting):
        assert counting.ends() == {}

    def test_what_has_ended_is_over(self, counting):
        assert ended(counting, "b", now=10.0).ends() == {"b": "b.1"}

    def test_what_is_over_or_released_counts_no_more(self, counting):
        released = counting.observe(replace(lease("c"), holder=""), now=1.0)
        assert released.said_over("b", "b.1").ends() == {"b": "b.1", "c": "c.1"}

    def test_a_later_epoch_is_not(self, counting):
        again = counting.said_over("b", "b.1").observe(lease(renewed=2.0, epoch="b.2"), now=1.0)
        assert again.ends() == {}

    def test_agents_without_epochs_have_none(self):
        without = ended(seen(lease(epoch="")), "b", now=10.0)
        assert not without.is_live("b")
        assert without.ends() == {}
        assert without.epochs() == {}


class TestEndOfAgentsWithoutEpochs:
    def test_one_that_has_no_holder_does_not_leave(self):
        assert seen(lease(epoch="", holder="")).is_live("b")


class TestChangesThatAreNone:
    def test_a_lease_seen_again_keeps_what_was_found(self, counting):
        found = counting.found("b", Check.ASK_NODE, asked_at=9.8)
        again = found.observe(lease("b", version="2"), now=9.9)
        assert "b" not in again.checks(9.9)

    def test_one_of_another_instance_is_another_renewal(self, counting):
        again = counting.observe(lease("b", instance="pod"), now=5.0)
        assert again.leases["b"].until == 15.0


class TestOldLeases:
    """By the API server's clock, which reads 1000 when the newest Lease is written."""

    def old(self, node="b", written=900.0, **more):
        return lease(node, written=written, **more)

    def new(self, written=1000.0):
        return lease("c", epoch="c.1", written=written)

    @pytest.fixture(params=["first", "last"])
    def seen(self, request):
        """The old Lease is seen before the new one, or after it."""

        def seen(*leases):
            counting = Counting()
            for each in leases if request.param == "first" else reversed(leases):
                counting = counting.observe(each, now=5.0)
            return counting

        return seen

    def test_one_that_is_seen_for_the_first_time_is_checked_at_once(self, seen):
        counting = seen(self.old(), self.new())
        assert counting.leases["b"].until == 5.0
        assert counting.checks(5.0) == {"b": Check.ASK_NODE}
        assert counting.is_live("b")
        assert counting.leases["c"].until == 15.0

    def test_one_of_an_agent_that_knows_no_epochs_has_ended(self, seen):
        counting = seen(self.old(epoch=""), self.new())
        assert not counting.is_live("b")
        assert counting.observe(self.old(renewed=2.0, epoch=""), now=6.0).is_live("b")

    @pytest.mark.parametrize("written", [930.0, 1000.0, 1100.0, None])
    def test_one_of_the_last_minute_or_of_an_unknown_time_counts(self, seen, written):
        counting = seen(self.old(written=written), self.new())
        assert counting.leases["b"].until == 15.0

    def test_nothing_is_known_of_the_servers_time_without_another_lease(self):
        assert Counting().observe(self.old(), now=5.0).leases["b"].until == 15.0

    def test_one_that_was_seen_renewed_counts(self):
        """Of several API servers one may have a clock that is wrong."""
        counting = Counting().observe(self.old(written=890.0), now=0.0)
        counting = counting.observe(self.old(renewed=2.0), now=5.0)
        assert counting.written(2000.0, now=6.0).leases["b"].until == 15.0

    def test_one_that_was_promised_counts_until_then(self, seen):
        counting = seen(self.old(), self.new()).promise("b", until=9.0)
        assert counting.written(2000.0, now=6.0).leases["b"].until == 9.0

    def test_the_own_lease_shows_the_servers_time_too(self):
        counting = Counting().observe(self.old(), now=5.0).written(1000.0, now=6.0)
        assert counting.leases["b"].until == 6.0
        assert counting.written(None, now=7.0) is counting
        assert counting.written(999.0, now=7.0) is counting

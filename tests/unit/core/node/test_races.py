# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Things that happen at the same moment, in every order: who has the address afterwards.

Each race is decided by functions on frozen records, so an order of events is an order of calls.
What only a cluster can show is in the integration tests.
"""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from purelb.core.election.election import MembershipView
from purelb.core.holding.counting import Counting
from purelb.core.holding.right import Right
from purelb.core.model import Lease
from purelb.core.node.announcing import Announcements
from purelb.core.node.snapshot import membership_view_of
from purelb.core.settings import AnnounceConfig, LeaseTiming
from tests.support.core.snapshots import (
    NET4,
    NET6,
    NOW,
    VIP4,
    VIP6,
    on_eth0,
    planned,
    service,
    snapshot,
)

BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
TIMING = LeaseTiming()
SUBNETS = (NET4, NET6)


def renewed(right, *, sent_at, now):
    right, renewal = right.sent(SUBNETS, now=sent_at)
    return right.succeeded(renewal, now=now)


@BOTH
def test_an_address_that_is_withdrawn_is_never_refreshed_in_the_same_plan(vip):
    aging = on_eth0(vip, lifetime=2)
    lost = snapshot(service(addresses=[vip]), node="n9", members=["n1"], held=[aging])
    made = planned(lost)
    assert [r.held for r in made.removes] == [aging]
    assert made.puts == ()


@BOTH
def test_the_second_announcement_leaves_the_loser_time_to_withdraw(vip):
    config, place = AnnounceConfig(), (2, vip)
    left, first = Announcements().gained([place], config, now=0.0).due([place], config, now=0.0)
    assert first == [place]
    assert left.next_at == config.delay > 0


@BOTH
def test_a_sequence_stops_when_the_election_changes_in_its_middle(vip):
    config, place = AnnounceConfig(), (2, vip)
    left, _first = Announcements().gained([place], config, now=0.0).due([place], config, now=0.0)
    left, _second = left.due([place], config, now=config.delay)
    left, due = left.due([], config, now=config.delay + config.interval)
    assert (due, left.next_at) == ([], None)


@BOTH
def test_failed_renewals_withdraw_before_any_peer_may_take_over(vip):
    right = renewed(Right(TIMING, "t"), sent_at=NOW, now=NOW)
    failing, renewal = right.sent(SUBNETS, now=NOW + 5)
    deadline = failing.failed(renewal, now=NOW + 6).deadline(NOW + 7)
    assert deadline is None
    held = on_eth0(vip, lifetime=5)
    membership = membership_view_of(
        snapshot().membership.members, deadline, listed=True, now=NOW + 7
    )
    unhealthy = snapshot(service(addresses=[vip]), held=[held], membership=membership)
    assert [r.held for r in planned(unhealthy).removes] == [held]
    peer = Counting().observe(Lease("n1", holder="n1", renew_time=1.0), now=NOW + 0.001)
    assert peer.checks(NOW + 7) == {}
    assert peer.at(NOW + 7).is_live("n1")


def test_no_order_of_news_after_a_partition_makes_two_winners():
    """One node comes back, one was always there: in any order of what each hears, they agree."""
    news = [
        Lease("n1", holder="n1", renew_time=60.0),
        Lease("n2", holder="n2", renew_time=60.0),
        Lease("n3", holder="n3", renew_time=60.0),
    ]
    results = set()
    for order in itertools.permutations(news):
        counting = Counting()
        for lease in order:
            counting = counting.observe(lease, now=NOW)
        results.add(frozenset(lease.node for lease in counting.at(NOW + 1).counted()))
    assert results == {frozenset({"n1", "n2", "n3"})}


@BOTH
def test_a_missing_address_is_put_back_and_a_stale_one_is_not(vip):
    missing = snapshot(service(addresses=[vip]))
    assert [p.address for p in planned(missing).puts] == [vip]
    no_longer = replace(missing, membership=MembershipView())
    assert planned(no_longer).puts == ()


@BOTH
def test_a_node_that_leaves_plans_nothing_but_withdrawals(vip):
    held = on_eth0(vip)
    leaving = snapshot(service(addresses=[vip]), held=[held], leaving=True)
    made = planned(leaving)
    assert ([r.held for r in made.removes], made.puts) == ([held], ())


def test_a_renewal_answered_after_the_end_does_not_revive_the_right():
    left = renewed(Right(TIMING, "t"), sent_at=NOW, now=NOW).released()
    late = renewed(left, sent_at=NOW + 1, now=NOW + 2)
    assert late.deadline(NOW + 2) is None

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from purelb.core.model import Link
from purelb.core.node.lost_segments import PATIENCE, LostSegments
from tests.support.core.snapshots import ETH0, NET4, NET6

BRIDGE = Link(3, "br0")
BOTH = (ETH0, NET4), (ETH0, NET6)
AT_WORK = LostSegments().seen(BOTH, [ETH0], now=0.0)


def test_nothing_is_lost_at_first():
    assert (AT_WORK.kept([ETH0]), AT_WORK.next_at()) == ((), None)


def test_what_is_lost_counts_for_a_while():
    lost = AT_WORK.seen((), [ETH0], now=10.0)
    assert lost.kept([ETH0]) == BOTH
    assert lost.next_at() == 10.0 + PATIENCE
    still = lost.seen((), [ETH0], now=10.0 + PATIENCE - 0.1)
    assert (still.kept([ETH0]), still.next_at()) == (BOTH, 10.0 + PATIENCE)
    over = still.seen((), [ETH0], now=10.0 + PATIENCE)
    assert (over.kept([ETH0]), over.next_at()) == ((), None)


def test_each_family_has_its_own_time():
    lost = AT_WORK.seen([(ETH0, NET4)], [ETH0], now=10.0).seen((), [ETH0], now=11.0)
    assert lost.kept([ETH0]) == BOTH
    later = lost.seen((), [ETH0], now=10.5 + PATIENCE)
    assert later.kept([ETH0]) == ((ETH0, NET4),)


def test_what_returns_is_not_lost_and_has_its_time_again():
    back = AT_WORK.seen((), [ETH0], now=10.0).seen(BOTH, [ETH0], now=11.0)
    assert back.kept([ETH0]) == ()
    assert back.seen((), [ETH0], now=20.0).next_at() == 20.0 + PATIENCE


def test_a_subnet_that_is_on_another_link_now_is_not_lost():
    moved = AT_WORK.seen([(BRIDGE, NET4)], [ETH0, BRIDGE], now=10.0)
    assert moved.kept([ETH0, BRIDGE]) == ((ETH0, NET6),)


def test_a_link_without_a_carrier_or_that_is_gone_is_not_waited_for():
    for links in ([replace(ETH0, has_carrier=False)], [], [BRIDGE]):
        assert AT_WORK.seen((), links, now=10.0).kept(links) == ()


def test_the_link_is_as_it_is_now():
    renamed = replace(ETH0, name="lan0")
    assert AT_WORK.seen((), [renamed], now=10.0).kept([renamed])[0][0] is renamed

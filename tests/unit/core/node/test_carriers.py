# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

from purelb.core.node.carriers import PATIENCE, Carriers
from tests.support.core.snapshots import DUMMY, ETH0

UNPLUGGED = replace(ETH0, has_carrier=False)
AT_WORK = Carriers().seen([ETH0, DUMMY], now=0.0)


def test_a_link_with_a_carrier_stays_as_it_is():
    assert AT_WORK.kept([ETH0, DUMMY], now=1.0) == (ETH0, DUMMY)
    assert AT_WORK.next_at(1.0) is None


def test_a_lost_carrier_is_believed_after_a_while():
    lost = AT_WORK.seen([UNPLUGGED, DUMMY], now=10.0)
    assert lost.kept([UNPLUGGED, DUMMY], now=10.0 + PATIENCE - 0.1) == (ETH0, DUMMY)
    assert lost.next_at(10.0) == 10.0 + PATIENCE
    assert lost.kept([UNPLUGGED, DUMMY], now=10.0 + PATIENCE) == (UNPLUGGED, DUMMY)
    assert lost.next_at(10.0 + PATIENCE) is None


def test_reading_it_again_does_not_prolong_that():
    lost = AT_WORK.seen([UNPLUGGED], now=10.0).seen([UNPLUGGED], now=11.0)
    assert lost.next_at(11.0) == 10.0 + PATIENCE
    later = lost.seen([UNPLUGGED], now=60.0)
    assert later.kept([UNPLUGGED], now=60.0) == (UNPLUGGED,)


def test_a_flap_changes_nothing_and_the_next_one_has_its_own_time():
    back = AT_WORK.seen([UNPLUGGED], now=10.0).seen([ETH0], now=11.0)
    assert back.next_at(11.0) is None
    assert back.seen([UNPLUGGED], now=11.5).next_at(11.5) == 11.5 + PATIENCE


def test_a_link_that_never_had_a_carrier_is_not_waited_for():
    fresh = Carriers().seen([UNPLUGGED], now=0.0)
    assert fresh.kept([UNPLUGGED], now=0.0) == (UNPLUGGED,)
    assert fresh.next_at(0.0) is None

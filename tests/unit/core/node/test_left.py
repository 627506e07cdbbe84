# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a right left that has ended, and the addresses that the fence ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.holding.deadline import HoldDeadline
from purelb.core.names import ADDRESS_PROTOCOL, FENCED_PROTOCOL, WITNESS_PROTOCOL
from purelb.core.node.left import Opened
from purelb.core.node.plan import prolonged
from purelb.core.settings import AddressConfig
from tests.support.core.snapshots import (
    DUMMY,
    ETH0,
    NOW,
    VIP4,
    VIP6,
    on_dummy,
    on_eth0,
    planned,
    service,
    snapshot,
)

VIPS = (VIP4, VIP6)
MORE4, MORE6 = VIP4 + 1, VIP6 + 1
BOTH = pytest.mark.parametrize("vip", VIPS, ids=["v4", "v6"])
LIFETIME = 40


def fenced(vip, *, left=30.0, **more):
    """An address that the fence ends, with so many seconds left."""
    return on_eth0(vip, lifetime=left, protocol=FENCED_PROTOCOL, **more)


def witness(vip, **more):
    return on_eth0(vip, protocol=WITNESS_PROTOCOL, **more)


def with_fence(*services, opened=Opened.EVER_SINCE, **more):
    return snapshot(*services, is_fenced=True, opened=opened, **more)


def marks(made):
    return {put.address: put.protocol for put in made.puts}


@BOTH
class TestLeft:
    """Of a node with two addresses: what an agent may trust."""

    def left(self, *held, opened):
        return {address for _link, address in with_fence(held=held, opened=opened).left}

    def test_with_a_witness_nothing_is_left(self, vip):
        held = (fenced(vip), witness(vip + 1))
        assert self.left(*held, opened=Opened.NOT_YET) == set()

    def test_without_one_what_outlasts_its_right_is(self, vip):
        held = (fenced(vip), on_eth0(vip + 1))
        assert self.left(*held, opened=Opened.NOT_YET) == {vip}

    def test_an_agent_that_has_been_open_ever_since_needs_no_witness(self, vip):
        assert self.left(fenced(vip), opened=Opened.EVER_SINCE) == set()

    def test_once_it_was_shut_all_is(self, vip):
        """Also the witness: while the machine sleeps, lifetimes stand still."""
        held = (fenced(vip), witness(vip + 1))
        assert self.left(*held, opened=Opened.SHUT) == {vip, vip + 1}

    def test_others_and_remote_addresses_are_not(self, vip):
        held = (on_eth0(vip, protocol=0), on_dummy(vip + 1))
        for opened in Opened:
            made = with_fence(held=held, opened=opened, dummies=frozenset({DUMMY.index}))
            assert made.left == frozenset()

    def test_it_is_removed_and_added_again_if_it_may_be(self, vip):
        for opened in (Opened.NOT_YET, Opened.SHUT):
            made = planned(with_fence(service(addresses=[vip]), held=(fenced(vip),), opened=opened))
            assert [r.held.address for r in made.removes] == [vip]
            assert [(p.address, p.is_new, p.protocol) for p in made.puts] == [
                (vip, True, WITNESS_PROTOCOL)
            ]
            assert made.first == ()


class TestPlan:
    def test_one_address_is_the_witness_and_the_fence_ends_the_others(self):
        made = planned(with_fence(service(), service("more", (MORE4, MORE6))))
        assert marks(made) == {
            VIP4: WITNESS_PROTOCOL,
            MORE4: FENCED_PROTOCOL,
            VIP6: FENCED_PROTOCOL,
            MORE6: FENCED_PROTOCOL,
        }
        lifetimes = {put.address: put.valid_lft for put in made.puts}
        assert lifetimes == {VIP4: 10, MORE4: LIFETIME, VIP6: LIFETIME, MORE6: LIFETIME}
        assert made.witness in made.puts

    def test_without_a_fence_all_end_by_their_lifetimes(self):
        made = planned(snapshot(service()))
        assert set(marks(made).values()) == {ADDRESS_PROTOCOL}
        assert (made.witness, made.first) == (None, ())

    def test_remote_addresses_have_no_witness(self):
        assert planned(with_fence()).witness is None

    @BOTH
    def test_the_witness_stays_the_same(self, vip):
        held = (fenced(vip), witness(vip + 1))
        made = planned(with_fence(service(addresses=[vip, vip + 1]), held=held))
        assert (made.puts, made.removes) == ((), ())
        assert made.witness.address == vip + 1

    @BOTH
    def test_a_new_witness_is_put_before_the_one_before_goes(self, vip):
        held = (fenced(vip), witness(vip + 1))
        made = planned(with_fence(service(addresses=[vip]), held=held))
        assert [r.held.address for r in made.removes] == [vip + 1]
        assert [(p.address, p.is_new) for p in made.first] == [(vip, False)]
        assert made.puts == made.first

    @BOTH
    def test_a_witness_that_is_to_be_put_again_is_none(self, vip):
        """One with another mask is removed first."""
        held = (fenced(vip), witness(vip + 1, prefixlen=vip.max_prefixlen - 1))
        made = planned(with_fence(service(addresses=[vip, vip + 1]), held=held))
        assert made.witness.address == vip
        assert [p.address for p in made.first] == [vip]

    @BOTH
    @pytest.mark.parametrize(("left", "puts"), [(21.5, 0), (20.5, 1)])
    def test_a_refresh_follows_when_half_is_left(self, vip, left, puts):
        held = (fenced(vip, left=left), witness(vip + 1))
        made = planned(with_fence(service(addresses=[vip, vip + 1]), held=held))
        assert [put.valid_lft for put in made.puts] == [LIFETIME] * puts
        assert made.refresh_at == NOW + (80 / 3 if puts else left - 40 / 3)

    @BOTH
    def test_the_deadline_does_not_limit_it(self, vip):
        held = (fenced(vip, left=39.0), witness(vip + 1, lifetime=4.0))
        wanted = service(addresses=[vip, vip + 1])
        made = planned(with_fence(wanted, held=held, hold_until=NOW + 5))
        assert made.puts == ()

    @BOTH
    def test_where_the_fence_has_a_gap_all_end_with_the_right_again(self, vip):
        held = (fenced(vip), witness(vip + 1))
        made = planned(snapshot(service(addresses=[vip, vip + 1]), held=held))
        assert marks(made) == {vip: ADDRESS_PROTOCOL, vip + 1: ADDRESS_PROTOCOL}
        assert {put.valid_lft for put in made.puts} == {10}

    def test_a_shorter_lifetime_is_the_users(self):
        config = AddressConfig(valid_lifetime=20)
        made = planned(with_fence(service(), config=config))
        assert {put.address: put.valid_lft for put in made.puts} == {VIP4: 10, VIP6: 20}
        for lifetime in (0, 3600):
            made = planned(with_fence(service(), config=replace(config, valid_lifetime=lifetime)))
            assert {put.address: put.valid_lft for put in made.puts} == {VIP4: 10, VIP6: LIFETIME}


class TestSending:
    def put(self):
        made = planned(with_fence(service()))
        return next(put for put in made.puts if put.protocol == FENCED_PROTOCOL)

    def test_it_is_not_sent_once_the_right_has_ended(self):
        put = self.put()
        assert put.sent_at(NOW + 8.5) is put
        assert put.sent_at(NOW + 9.5) is None

    def test_it_may_be_there_later(self):
        assert self.put().may_last(NOW + 1000)


@BOTH
class TestProlonged:
    def test_a_renewal_prolongs_the_witness(self, vip):
        made = planned(with_fence(service(addresses=[vip])))
        put = prolonged(made.witness, HoldDeadline(NOW + 12, NOW + 15), now=NOW + 5)
        assert (put.link, put.address, put.is_new) == (ETH0.index, vip, False)
        assert (put.valid_lft, put.ends_by, put.protocol) == (9, NOW + 14, WITNESS_PROTOCOL)
        assert put.preferred_lft == (9 if vip.version == 4 else 0)

    def test_not_with_less_than_a_second(self, vip):
        made = planned(with_fence(service(addresses=[vip])))
        assert prolonged(made.witness, HoldDeadline(NOW, NOW + 1.9), now=NOW) is None

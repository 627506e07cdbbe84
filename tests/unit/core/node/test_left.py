# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a right left that has ended, and the addresses that the fence ends."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.names import ADDRESS_PROTOCOL, FENCED_PROTOCOL
from purelb.core.node.left import Opened
from purelb.core.settings import AddressConfig
from tests.support.core.snapshots import (
    DUMMY,
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
BOTH = pytest.mark.parametrize("vip", VIPS, ids=["v4", "v6"])
LIFETIME = 40


def fenced(vip, *, left=30.0, **more):
    """An address that the fence ends, with so many seconds left."""
    return on_eth0(vip, lifetime=left, protocol=FENCED_PROTOCOL, **more)


def with_fence(*services, opened=Opened.EVER_SINCE, **more):
    return snapshot(*services, is_fenced=True, opened=opened, **more)


def marks(made):
    return {put.address: put.protocol for put in made.puts}


@BOTH
class TestLeft:
    """Of a node with two addresses: what an agent may trust."""

    def left(self, *held, opened):
        return {address for _link, address in with_fence(held=held, opened=opened).left}

    def test_while_the_fence_of_the_agent_before_is_open_nothing_is(self, vip):
        held = (fenced(vip), on_eth0(vip + 1))
        assert self.left(*held, opened=Opened.BEFORE) == set()

    def test_after_that_what_outlasts_its_right_is(self, vip):
        held = (fenced(vip), on_eth0(vip + 1))
        assert self.left(*held, opened=Opened.NOT_YET) == {vip}

    def test_to_an_agent_that_has_been_open_ever_since_nothing_is(self, vip):
        assert self.left(fenced(vip), opened=Opened.EVER_SINCE) == set()

    def test_once_it_was_shut_all_is(self, vip):
        """Also what ends by its lifetime: while the machine sleeps, that stands still."""
        held = (fenced(vip), on_eth0(vip + 1))
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
                (vip, True, FENCED_PROTOCOL)
            ]


class TestPlan:
    def test_the_fence_ends_all_local_addresses(self):
        made = planned(with_fence(service()))
        assert marks(made) == {VIP4: FENCED_PROTOCOL, VIP6: FENCED_PROTOCOL}
        assert {put.valid_lft for put in made.puts} == {LIFETIME}
        assert {put.address: put.preferred_lft for put in made.puts} == {VIP4: LIFETIME, VIP6: 0}

    def test_without_a_fence_all_end_by_their_lifetimes(self):
        made = planned(snapshot(service()))
        assert set(marks(made).values()) == {ADDRESS_PROTOCOL}

    @BOTH
    def test_an_address_may_be_put_as_long_as_the_fence_is_open(self, vip):
        """Lifetimes have whole seconds; it is exact."""
        wanted = service(addresses=[vip])
        (put,) = planned(with_fence(wanted, hold_until=NOW + 0.5)).puts
        assert put.valid_lft == LIFETIME
        assert planned(with_fence(wanted, hold_until=NOW + 0.01)).puts == ()
        assert planned(snapshot(wanted, hold_until=NOW + 1.9)).puts == ()

    @BOTH
    @pytest.mark.parametrize(("left", "puts"), [(21.5, 0), (20.5, 1)])
    def test_a_refresh_follows_when_half_is_left(self, vip, left, puts):
        made = planned(with_fence(service(addresses=[vip]), held=(fenced(vip, left=left),)))
        assert [put.valid_lft for put in made.puts] == [LIFETIME] * puts
        assert made.refresh_at == NOW + (80 / 3 if puts else left - 40 / 3)

    @BOTH
    def test_the_deadline_does_not_limit_it(self, vip):
        held = (fenced(vip, left=39.0),)
        made = planned(with_fence(service(addresses=[vip]), held=held, hold_until=NOW + 5))
        assert made.puts == ()

    @BOTH
    def test_where_the_fence_has_a_gap_all_end_with_the_right_again(self, vip):
        made = planned(snapshot(service(addresses=[vip]), held=(fenced(vip),)))
        assert marks(made) == {vip: ADDRESS_PROTOCOL}
        assert {put.valid_lft for put in made.puts} == {10}

    def test_a_shorter_lifetime_is_the_users(self):
        config = AddressConfig(valid_lifetime=20)
        made = planned(with_fence(service(), config=config))
        assert {put.address: put.valid_lft for put in made.puts} == dict.fromkeys(VIPS, 20)
        for lifetime in (0, 3600):
            made = planned(with_fence(service(), config=replace(config, valid_lifetime=lifetime)))
            assert {put.address: put.valid_lft for put in made.puts} == {
                VIP4: LIFETIME,
                VIP6: LIFETIME,
            }


class TestSending:
    def put(self):
        made = planned(with_fence(service()))
        return next(put for put in made.puts if put.protocol == FENCED_PROTOCOL)

    def test_it_is_not_sent_once_the_right_has_ended(self):
        put = self.put()
        assert put.sent_at(put.ends_by - 0.1) is put
        assert put.sent_at(put.ends_by) is None

    def test_it_may_be_there_later(self):
        assert self.put().may_last(NOW + 1000)

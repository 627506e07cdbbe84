# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What permissions change in the decisions of the node `n1`, whose peer is `n2`."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from purelb.core.election.election import MembershipView
from purelb.core.election.members import Member, Standing
from purelb.core.holding.permissions import Pair, Permissions
from purelb.core.model import PoolType, Reason
from purelb.core.node.decisions import decide_vips
from purelb.core.node.holdings import HoldingFacts, decide_holdings
from tests.support.core.ranks import won_by
from tests.support.core.snapshots import (
    DUMMY,
    ETH0,
    NET4,
    NET6,
    REMOTE_GROUP,
    VIP4,
    VIP6,
    on_eth0,
    service,
    snapshot,
)

EPOCHS = {"n2": "n2.1"}
FAMILIES = pytest.mark.parametrize("first", [VIP4, VIP6], ids=["v4", "v6"])


def elected(address, **more):
    one = service(addresses=(address,), pool_type=more.pop("pool_type", PoolType.LOCAL))
    return decide_vips(snapshot(one, members=("n1", "n2"), **more))


def met(*, lent=(), borrowed=()):
    """The permissions of `n1` once it has met `n2`."""
    return Permissions(
        "n1", "n1.1", {"n2": Pair("n2.1", lent=frozenset(lent), borrowed=frozenset(borrowed))}
    )


def act(decisions, permissions, *, held=(), epochs=EPOCHS, may_add=True, is_deleted=False):
    return decide_holdings(
        HoldingFacts(decisions, permissions, frozenset(held), epochs, may_add, is_deleted)
    )


NOT_MET = Permissions("n1", "n1.1")


@FAMILIES
class TestWhoWins:
    def test_it_puts_an_address_with_the_permission(self, first):
        address = won_by("n1", first)
        decisions = elected(address)
        found = act(decisions, met())
        assert found.decisions is decisions
        assert found.missing == {}

    def test_it_waits_for_a_peer_that_it_has_not_met(self, first):
        address = won_by("n1", first)
        found = act(elected(address), NOT_MET)
        decision = found.decisions.by_address[address]
        assert (decision.reason, decision.link) == (Reason.PERMISSION_MISSING, None)
        assert not decision.is_here
        assert found.decisions.here == ()
        assert found.missing == {address: {"n2"}}

    def test_it_waits_while_the_peer_has_the_permission(self, first):
        address = won_by("n1", first)
        found = act(elected(address), met(lent=[address]))
        assert found.missing == {address: {"n2"}}
        assert found.lacking == {"n2": 1}

    def test_it_waits_while_it_may_add_nothing(self, first):
        address = won_by("n1", first)
        found = act(elected(address), met(), may_add=False)
        assert found.missing == {address: {"n2"}}
        assert found.lacking == {}
        assert not found.decisions.here

    def test_it_keeps_what_it_has_although_it_may_add_nothing(self, first):
        address = won_by("n1", first)
        decisions = elected(address, held=(on_eth0(address),))
        found = act(decisions, NOT_MET, held=[address], may_add=False)
        assert found.decisions is decisions

    def test_it_withdraws_what_it_has_once_that_is_denied(self, first):
        address = won_by("n1", first)
        decisions = elected(address, held=(on_eth0(address),))
        found = act(decisions, met(lent=[address]), held=[address])
        assert found.decisions.by_address[address].reason is Reason.PERMISSION_MISSING
        assert found.missing == {address: {"n2"}}

    def test_it_waits_for_no_node_without_an_epoch(self, first):
        decisions = elected(won_by("n1", first))
        assert act(decisions, NOT_MET, epochs={}).decisions is decisions

    def test_it_waits_for_no_node_that_does_not_cover_the_address(self, first):
        address = won_by("n1", first)
        apart = Member("n2", (ip_network("10.0.0.0/8"), ip_network("fd99::/64")))
        view = MembershipView((Member("n1", (NET4, NET6)), apart))
        decisions = elected(address, membership=view)
        assert act(decisions, NOT_MET).decisions is decisions

    def test_it_waits_also_for_a_draining_peer(self, first):
        address = won_by("n2", first)
        drained = Member("n2", (NET4, NET6), Standing.DRAINED)
        view = MembershipView((Member("n1", (NET4, NET6)), drained))
        assert act(elected(address, membership=view), met()).missing == {address: {"n2"}}
        assert not act(elected(address, membership=view), met(borrowed=[address])).missing

    def test_each_address_waits_for_itself(self, first):
        one = won_by("n1", first)
        other = won_by("n1", one + 1)
        decisions = decide_vips(snapshot(service(addresses=(one, other)), members=("n1", "n2")))
        found = act(decisions, met(lent=[one]))
        assert set(found.missing) == {one}
        assert [d.vip.address for d in found.decisions.here] == [other]


@FAMILIES
class TestWhoHoldsWhatAnotherWins:
    def test_it_keeps_it_until_it_is_asked(self, first):
        address = won_by("n2", first)
        decisions = elected(address, held=(on_eth0(address),))
        found = act(decisions, met(borrowed=[address]), held=[address])
        decision = found.decisions.by_address[address]
        assert (decision.reason, decision.link) == (Reason.KEPT, ETH0)
        assert decision.is_here
        assert decision.election.winner == "n2"
        assert found.missing == {}

    def test_it_keeps_it_while_they_have_not_met(self, first):
        address = won_by("n2", first)
        found = act(elected(address), NOT_MET, held=[address])
        assert found.decisions.by_address[address].reason is Reason.KEPT

    def test_it_withdraws_once_that_is_denied(self, first):
        address = won_by("n2", first)
        decisions = elected(address)
        assert act(decisions, met(), held=[address]).decisions is decisions
        assert decisions.by_address[address].reason is Reason.NOT_WINNER

    def test_it_withdraws_at_once_where_the_winner_has_no_epoch(self, first):
        decisions = elected(won_by("n2", first))
        address = next(iter(decisions.by_address))
        assert act(decisions, NOT_MET, held=[address], epochs={}).decisions is decisions

    @pytest.mark.parametrize("standing", list(Standing)[1:])
    def test_it_keeps_it_while_a_better_node_has_not_asked(self, first, standing):
        address = won_by("n1", first)
        own = Member("n1", (NET4, NET6), standing)
        view = MembershipView((own, Member("n2", (NET4, NET6))))
        decisions = elected(address, membership=view, standing=standing)
        assert decisions.by_address[address].reason is not Reason.NOT_WINNER
        found = act(decisions, met(), held=[address])
        assert found.decisions.by_address[address].reason is Reason.KEPT
        denied = act(decisions, met(lent=[address]), held=[address])
        assert denied.decisions is decisions

    def test_it_takes_nothing_that_it_does_not_hold(self, first):
        decisions = elected(won_by("n2", first))
        assert act(decisions, met(borrowed=decisions.by_address)).decisions is decisions

    def test_it_keeps_nothing_for_which_it_has_no_place(self, first):
        decisions = elected(won_by("n2", first), links=())
        assert act(decisions, NOT_MET, held=list(decisions.by_address)).decisions is decisions

    def test_it_keeps_nothing_that_is_not_its_own(self, first):
        address = won_by("n2", first)
        decisions = elected(address, held=(on_eth0(address, protocol=0, lifetime=None),))
        assert address in decisions.snapshot.foreign
        assert act(decisions, NOT_MET, held=[address]).decisions is decisions

    def test_it_keeps_nothing_that_no_node_may_have(self, first):
        address = won_by("n2", first)
        decisions = elected(address, known=frozenset({address}))
        assert act(decisions, NOT_MET, held=[address]).decisions is decisions

    def test_it_keeps_nothing_that_is_no_address_of_a_service(self, first):
        decisions = elected(won_by("n1", first))
        assert act(decisions, met(), held=[first + 99]).decisions is decisions

    def test_it_keeps_nothing_while_it_leaves(self, first):
        address = won_by("n2", first)
        decisions = elected(address, leaving=True)
        assert act(decisions, NOT_MET, held=[address]).decisions is decisions


@FAMILIES
class TestWhoseLeaseIsDeleted:
    """Who has not met this node does not know of it, so it would take what this node holds."""

    @pytest.mark.parametrize("winner", ["n1", "n2"])
    def test_it_withdraws_what_it_has_until_it_has_met_all(self, first, winner):
        address = won_by(winner, first)
        decisions = elected(address, held=(on_eth0(address),))
        found = act(decisions, NOT_MET, held=[address], is_deleted=True)
        assert not found.decisions.here

    @pytest.mark.parametrize("winner", ["n1", "n2"])
    def test_it_keeps_what_it_has_if_it_has_met_them(self, first, winner):
        address = won_by(winner, first)
        decisions = elected(address, held=(on_eth0(address),))
        permissions = met(borrowed=[address] if winner == "n2" else [])
        found = act(decisions, permissions, held=[address], is_deleted=True)
        assert [d.vip.address for d in found.decisions.here] == [address]


@FAMILIES
def test_remote_addresses_need_no_permission(first):
    decisions = elected(first, groups=(REMOTE_GROUP,), pool_type=PoolType.REMOTE, dummy=DUMMY)
    assert [d.reason for d in decisions.here] == [Reason.ANNOUNCING_NON_LOCAL]
    for held in ((), (first,)):
        found = act(decisions, NOT_MET, held=held, may_add=False)
        assert found.decisions is decisions
        assert found.missing == {}

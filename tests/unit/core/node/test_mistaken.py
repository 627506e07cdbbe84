# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""VIPs in the status of Nodes: who is believed, what is remembered, and what stays a node's own."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.model import Reason
from purelb.core.node.decisions import decide_vips
from purelb.core.node.mistaken import (
    REMEMBERED,
    RemovedVips,
    mistaken_addresses,
    own_mistaken,
    word_of,
)
from tests.support.core.snapshots import ETH0, VIP4, VIP6, on_eth0, planned, service, snapshot

NOTHING = frozenset()
LISTED = {"n1": frozenset({VIP4, VIP6}), "n2": frozenset({VIP4})}
BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])


class TestWhoIsBelieved:
    def test_without_a_word_every_address_is_its_nodes(self):
        assert mistaken_addresses(LISTED, {"n1": (), "n2": ()}, NOTHING) == NOTHING

    def test_a_node_is_believed_about_itself(self):
        said = {"n1": (("n1", VIP6),), "n2": ()}
        assert mistaken_addresses(LISTED, said, NOTHING) == {("n1", VIP6)}

    def test_a_node_is_not_believed_about_one_that_speaks(self):
        assert mistaken_addresses(LISTED, {"n1": (("n2", VIP4),), "n2": ()}, NOTHING) == NOTHING

    def test_others_are_believed_about_a_node_without_a_live_lease(self):
        assert mistaken_addresses(LISTED, {"n2": (("n1", VIP4),)}, NOTHING) == {("n1", VIP4)}

    def test_what_a_node_said_that_is_gone_is_remembered(self):
        before = frozenset({("n1", VIP4)})
        assert mistaken_addresses(LISTED, {"n2": ()}, before) == before

    def test_a_node_that_is_back_takes_it_back(self):
        assert mistaken_addresses(LISTED, {"n1": ()}, frozenset({("n1", VIP4)})) == NOTHING

    @pytest.mark.parametrize("listed", [{}, {"n1": NOTHING}, {"n2": frozenset({VIP4})}])
    def test_what_the_status_lists_no_more_is_forgotten(self, listed):
        said = {"n1": (("n1", VIP4),)}
        assert mistaken_addresses(listed, said, frozenset({("n1", VIP4)})) == NOTHING


def test_a_lease_speaks_of_its_own_node_and_of_those_without_one():
    mistaken = frozenset({("n1", VIP6), ("n1", VIP4), ("n2", VIP4), ("n3", VIP4)})
    said = (("n1", VIP4), ("n1", VIP6), ("n3", VIP4))
    assert word_of("n1", mistaken, ["n1", "n2"]) == said


@BOTH
class TestTheOwnNode:
    def find(self, vip, *held, had=NOTHING, listed=None, services=(VIP4, VIP6), **more):
        made = snapshot(service(addresses=services), held=held, **more)
        return own_mistaken(frozenset({vip}) if listed is None else listed, made, had)

    def test_what_an_agent_put_is_not_the_nodes(self, vip):
        assert self.find(vip, on_eth0(vip)) == {vip}

    def test_what_is_not_listed_is_not_mistaken(self, vip):
        assert self.find(vip, on_eth0(vip), listed=NOTHING, had=frozenset({vip})) == NOTHING

    def test_what_no_agent_put_is_the_nodes_also_if_it_was_a_vip(self, vip):
        own = on_eth0(vip, protocol=0, lifetime=None)
        assert self.find(vip, own) == NOTHING
        assert self.find(vip, own, had=frozenset({vip})) == NOTHING

    def test_what_is_on_no_interface_was_mistaken_only_if_it_was_a_vip_here(self, vip):
        assert self.find(vip) == NOTHING
        assert self.find(vip, had=frozenset({vip})) == {vip}
        assert self.find(vip, had=frozenset({vip}), services=()) == {vip}

    def test_a_kernel_without_marks_knows_what_this_process_put(self, vip):
        held = on_eth0(vip, protocol=0)
        put = frozenset({(ETH0.index, vip)})
        assert self.find(vip, held, keeps_marks=False, put=put) == {vip}
        assert self.find(vip, held, keeps_marks=False) == NOTHING
        permanent = replace(held, expires_at=None)
        assert self.find(vip, permanent, keeps_marks=False, put=put) == NOTHING

    def test_a_mistaken_address_stays_where_it_is(self, vip):
        made = snapshot(service(addresses=[vip]), held=[on_eth0(vip)])
        (decision,) = decide_vips(made).by_address.values()
        assert decision.reason is Reason.ELECTION_WON
        # Until its agent has said so, one that carries our mark is not left behind as the node's.
        (remove,) = planned(replace(made, known=frozenset({vip}))).removes
        assert remove.reason is Reason.NODE_ADDRESS


def test_what_was_removed_is_remembered_for_a_while():
    empty = RemovedVips()
    assert empty.after([], now=0.0) is empty
    first = empty.after([VIP4], now=0.0)
    second = first.after([VIP6], now=1.0)
    assert second.until.keys() == {VIP4, VIP6}
    assert second.after([], now=REMEMBERED).until.keys() == {VIP6}
    assert second.after([], now=REMEMBERED - 1) is second

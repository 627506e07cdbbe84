# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses that come from another node need no duplicate address detection."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.election.election import MembershipView, rank
from purelb.core.election.members import Member
from purelb.core.model import Announcement
from purelb.core.node.decisions import decide_vips
from purelb.core.node.moves import Moves
from tests.support.core.snapshots import (
    DUMMY,
    NET4,
    NET6,
    REMOTE_GROUP,
    VIP4,
    VIP6,
    on_eth0,
    service,
    snapshot,
)

BOTH = ("n1", "n2")
WINNER, LOSER = rank(BOTH, VIP6)


def ill(members):
    """What a node sees whose own Lease is not valid."""
    return MembershipView(tuple(Member(n, (NET4, NET6)) for n in members), healthy=False)


class Node:
    """The memory of one node over several elections."""

    def __init__(self, name):
        self.name = name
        self.moves = Moves()
        self.known = ((), {})

    def sees(self, *services, held=(), duplicates=(), **more):
        made = snapshot(*services, node=self.name, **more)
        # As the store has it: what has not changed is the same object.
        if services == self.known[0]:
            made = replace(made, vips=self.known[1])
        self.known = services, made.vips
        elected = decide_vips(made, self.moves.seen)
        self.moves = self.moves.after(elected, held, frozenset(duplicates))
        return self.moves.elsewhere


class TestAnAddress:
    def test_that_is_new_is_detected_where_it_is_won(self):
        node = Node(WINNER)
        assert node.sees() == set()
        assert node.sees(service(addresses=[VIP6]), members=BOTH) == set()

    def test_of_a_node_that_is_gone_moves(self):
        node = Node(LOSER)
        for members in (BOTH, [node.name]):
            assert node.sees(service(addresses=[VIP6]), members=members) == {VIP6}

    def test_that_was_elsewhere_meanwhile_moves_back(self):
        node = Node(WINNER)
        web = service(addresses=[VIP6])
        assert node.sees(web, members=BOTH) == set()
        # Its own right has ended, then its Lease for the others, which elect among themselves.
        assert node.sees(web, membership=ill(BOTH)) == set()
        assert node.sees(web, membership=ill([LOSER])) == {VIP6}
        assert node.sees(web, members=BOTH) == {VIP6}

    def test_that_another_node_announced_before_the_start_moves(self):
        entry = Announcement(LOSER, "eth0", VIP6)
        web = service(addresses=[VIP6], announcing={6: (entry,)})
        assert Node(WINNER).sees(web, members=BOTH) == {VIP6}

    @pytest.mark.parametrize("is_own", [True, False], ids=["own", "after the start"])
    def test_does_not_move_for_any_other_entry(self, is_own):
        node = Node(WINNER)
        if not is_own:
            node.sees(members=BOTH)
        entry = Announcement(node.name if is_own else LOSER, "eth0", VIP6)
        web = service(addresses=[VIP6], announcing={6: (entry,)})
        assert node.sees(web, members=BOTH) == set()

    def test_of_another_service_is_new_again(self):
        node = Node(LOSER)
        node.sees(service(addresses=[VIP6]), members=BOTH)
        node.sees(members=[node.name])
        assert node.sees(service("other", addresses=[VIP6]), members=[node.name]) == set()

    def test_that_another_host_has_is_detected_again(self):
        for found in ({"duplicates": [VIP6]}, {"held": [on_eth0(VIP6, dad_failed=True)]}):
            node = Node(LOSER)
            web = service(addresses=[VIP6])
            assert node.sees(web, members=BOTH, held=[on_eth0(VIP6)]) == {VIP6}
            assert node.sees(web, members=[node.name], **found) == set()
            assert node.sees(web, members=[node.name]) == set()
            assert node.sees(web, members=BOTH) == {VIP6}

    def test_that_is_on_every_node_never_moves(self):
        entry = Announcement("n2", "kube-lb0", VIP6)
        web = service(addresses=[VIP6], announcing={6: (entry,)})
        remote = {"groups": (REMOTE_GROUP,), "dummy": DUMMY}
        assert Node("n1").sees(web, members=BOTH, **remote) == set()


def test_ipv4_has_no_detection_and_so_no_moves():
    node = Node(rank(BOTH, VIP4)[1])
    assert node.sees(service(addresses=[VIP4]), members=BOTH) == set()


def test_where_nothing_has_changed_nothing_is_looked_at():
    node = Node("n1")
    node.sees(service(), members=BOTH)
    before = node.moves
    assert before.after(before.seen, (), frozenset()) == before
    empty = replace(before, elsewhere=frozenset())
    assert empty.after(before.seen, (), frozenset()) == empty

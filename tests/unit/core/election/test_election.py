# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import itertools
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.addresses import parse_address
from purelb.core.election.election import (
    Decision,
    Elections,
    MembershipView,
    digest,
    elect,
    prefer,
    rank,
    share_subnet,
)
from purelb.core.election.members import Member, Standing
from purelb.core.model import Reason
from tests.support import ROOT

VECTORS = [
    line.split("\t")
    for line in (ROOT / "tests/unit/core/vectors/election.tsv").read_text().splitlines()
]
FIRST, EXCLUDED, EVICTED, ILL, LEAVING = Standing
VIP4, VIP6 = ip_address("192.168.1.100"), ip_address("fd53:9ef0:8683::1")
NODES = st.lists(st.text(min_size=1, max_size=12), min_size=1, max_size=8, unique=True)
ADDRESSES = st.ip_addresses()


def member(node, *subnets, standing=FIRST):
    return Member(node, tuple(map(ip_network, subnets)), standing)


@pytest.mark.parametrize(("node", "address", "hexdigest"), VECTORS)
def test_digest_is_what_sha256sum_says(node, address, hexdigest):
    assert digest(node, ip_address(address)).hex() == hexdigest


@pytest.mark.parametrize("address", sorted({row[1] for row in VECTORS}))
def test_winner_has_the_lowest_digest_of_the_vectors(address):
    expected = [row[0] for row in sorted(VECTORS, key=lambda r: r[2]) if row[1] == address]
    assert rank([row[0] for row in VECTORS], ip_address(address)) == expected


@given(NODES, ADDRESSES, st.randoms())
def test_rank_does_not_depend_on_the_order_of_the_nodes(nodes, address, random):
    shuffled = nodes.copy()
    random.shuffle(shuffled)
    assert rank(shuffled, address) == rank(nodes, address)


@given(NODES, ADDRESSES)
def test_only_the_addresses_of_a_lost_node_move(nodes, address):
    winner = rank(nodes, address)[0]
    for lost in nodes:
        left = rank([n for n in nodes if n != lost], address)
        if lost != winner:
            assert left[0] == winner


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        ("2001:DB8:0:0:0:0:0:1", "2001:db8::1"),
        ("2001:db8::0:1", "2001:db8::1"),
        ("::ffff:192.168.1.100", "192.168.1.100"),
        (" 192.168.1.100 ", "192.168.1.100"),
    ],
)
def test_spelling_of_an_address_does_not_matter(written, canonical):
    assert digest("n1", parse_address(written)) == digest("n1", ip_address(canonical))


@pytest.mark.parametrize(
    ("vip", "near", "far"),
    [
        (VIP4, "192.168.1.0/24", "192.168.2.0/24"),
        (VIP6, "fd53:9ef0:8683::/120", "fd53:9ef0:8684::/120"),
    ],
    ids=["v4", "v6"],
)
class TestCandidates:
    def test_only_nodes_in_the_subnet(self, vip, near, far):
        membership = MembershipView((member("a", near), member("b", far), member("c", far, near)))
        assert membership.candidates(vip) == {"a", "c"}

    def test_overlapping_subnets_make_all_nodes_candidates(self, vip, near, far):
        wider = str(ip_network(near).supernet(8))
        membership = MembershipView((member("a", near), member("b", wider)))
        assert membership.candidates(vip) == {"a", "b"}

    def test_a_draining_node_is_none(self, vip, near, far):
        membership = MembershipView((member("a", near), member("b", near, standing=LEAVING)))
        assert membership.candidates(vip) == {"a"}

    def test_the_best_standing_wins_and_only_a_leaving_node_is_never_one(self, vip, near, far):
        elsewhere = member("z", far)
        known = {s: [member(f"{s.name}{i}", near, standing=s) for i in "ab"] for s in Standing}
        for best in (FIRST, EXCLUDED, EVICTED, ILL):
            members = [one for standing in known for one in known[standing] if standing >= best]
            found = MembershipView((elsewhere, *members)).candidates(vip)
            assert found == {f"{best.name}a", f"{best.name}b"}
        assert MembershipView((elsewhere, *known[LEAVING])).candidates(vip) == frozenset()

    def test_the_other_family_never_matches(self, vip, near, far):
        everything = "::/0" if vip.version == 4 else "0.0.0.0/0"
        assert MembershipView((member("a", everything),)).candidates(vip) == frozenset()

    def test_every_observer_elects_the_same(self, vip, near, far):
        members = [member(n, near) for n in "abcd"]
        winners = {
            elect(vip, MembershipView(tuple(order))).winner
            for order in itertools.permutations(members)
        }
        assert winners == {rank("abcd", vip)[0]}

    @pytest.mark.parametrize(
        ("membership", "reason"),
        [
            (MembershipView((), listed=True), Reason.NO_ELIGIBLE_NODES),
            (MembershipView((), listed=False), Reason.LEASES_NOT_LISTED),
            (MembershipView((), healthy=False), Reason.LEASE_UNHEALTHY),
        ],
        ids=lambda value: value.value if isinstance(value, Reason) else "",
    )
    def test_no_winner_says_why(self, vip, near, far, membership, reason):
        decision = elect(vip, membership)
        assert (decision.winner, decision.reason) == (None, reason)


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.ip_addresses(v=4)), max_size=12),
    st.integers(min_value=0, max_value=32),
    st.ip_addresses(v=4),
)
def test_indexed_candidates_are_those_of_a_plain_search(rows, prefixlen, address):
    members = tuple(
        Member(node, (ip_network((int(net), prefixlen), strict=False),)) for node, net in rows
    )
    plain = {m.node for m in members if any(address in subnet for subnet in m.subnets)}
    assert MembershipView(members).candidates(address) == plain


class TestRemoteNodes:
    FREE, EVICTED = Member("free"), Member("evicted", standing=EVICTED)
    EXCLUDED, ILL = Member("excluded", standing=EXCLUDED), Member("ill", standing=ILL)
    GONE = Member("gone", standing=LEAVING)

    @pytest.mark.parametrize(
        ("members", "endpoints", "expected"),
        [
            ((FREE, EVICTED, GONE), None, {"free"}),
            ((EVICTED, GONE), None, {"evicted"}),
            ((ILL, EVICTED, EXCLUDED, GONE), None, {"excluded"}),
            ((ILL, GONE), None, {"ill"}),
            ((GONE,), None, set()),
            ((FREE, EVICTED, GONE), {"evicted", "gone"}, {"evicted"}),
            ((FREE, EVICTED, GONE), {"gone"}, set()),
        ],
        ids=["free", "evicted", "excluded", "ill", "none", "endpoint", "no endpoint"],
    )
    def test_a_standing_counts_only_where_a_better_one_is(self, members, endpoints, expected):
        assert MembershipView(members).remote_nodes(endpoints) == expected


class TestElections:
    NETS = ("192.168.1.0/24", "192.168.0.0/16", "fd53:9ef0:8683::/64", "fd53::/16")
    MEMBERS = st.lists(
        st.builds(
            member,
            st.sampled_from(["n1", "n2", "n3", "n4"]),
            st.sampled_from(NETS),
            st.sampled_from(NETS),
            standing=st.sampled_from(Standing),
        ),
        max_size=4,
        unique_by=lambda one: one.node,
    )

    @given(st.lists(MEMBERS, min_size=1, max_size=6))
    def test_equal_fresh_elections_after_any_changes(self, history):
        elections = Elections()
        for members in history:
            membership = MembershipView(tuple(members))
            elections = elections.after(membership, (VIP4, VIP6))
            for vip in (VIP4, VIP6):
                assert elections.decision_of(vip) == elect(vip, membership)

    @pytest.mark.parametrize("nodes", [("n1", "n2"), ("n2", "n1")], ids="-".join)
    def test_a_node_that_joins_wins_only_by_a_lower_digest(self, nodes):
        members = tuple(member(node, "192.168.1.0/24") for node in nodes)
        elections = Elections()
        for joined in (members[:1], members):
            elections = elections.after(MembershipView(joined), (VIP4,))
        assert elections.decision_of(VIP4).winner == rank(nodes, VIP4)[0]

    def test_unaffected_decisions_stay_the_same_object(self):
        before = MembershipView((member("n1", "192.168.1.0/24"), member("n2", "fd53::/16")))
        after = MembershipView((member("n1", "192.168.1.0/24"),))
        elections = Elections().after(before, (VIP4, VIP6))
        kept, lost = elections.decision_of(VIP4), elections.decision_of(VIP6)
        later = elections.after(after, (VIP4, VIP6))
        assert later.decision_of(VIP4) is kept
        assert (lost.winner, later.decision_of(VIP6).winner) == ("n2", None)

    @pytest.mark.parametrize(
        "change",
        [
            lambda elections: elections.after(elections.membership, (VIP4, VIP6)),
            lambda elections: elections.changed(added=(VIP6,), removed=()),
        ],
        ids=["after", "changed"],
    )
    def test_same_members_elect_only_new_addresses(self, change):
        membership = MembershipView((member("n1", "192.168.1.0/24", "fd53::/16"),))
        elections = Elections().after(membership, (VIP4,))
        later = change(elections)
        assert later.decision_of(VIP4) is elections.decision_of(VIP4)
        assert later.decision_of(VIP6).winner == "n1"

    def test_unlisted_addresses_are_dropped(self):
        membership = MembershipView((member("n1", "192.168.1.0/24"),))
        elections = Elections().after(membership, (VIP4,))
        assert elections.after(membership, ()).outcomes == {}
        assert elections.changed(added=(), removed=(VIP4,)).outcomes == {}


class TestPreference:
    ALL = frozenset({"n1", "n2", "n3"})

    @pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
    @pytest.mark.parametrize(
        "near",
        [["n1"], ["n2"], ["n3"], ["n2", "n3"], ["n2", "n9"]],
        ids=str,
    )
    def test_nodes_with_an_endpoint_come_first(self, vip, near):
        free = Decision("n1", Reason.ELECTION_WON, self.ALL)
        preferred = prefer(vip, free, frozenset(near))
        assert preferred.winner == rank(self.ALL.intersection(near), vip)[0]
        assert not preferred.affinity_ignored

    def test_all_candidates_compete_where_none_has_an_endpoint(self):
        free = Decision("n1", Reason.ELECTION_WON, self.ALL)
        preferred = prefer(VIP4, free, frozenset({"n9"}))
        assert (preferred.winner, preferred.affinity_ignored) == ("n1", True)

    def test_preference_needs_a_candidate(self):
        none = Decision(None, Reason.NO_ELIGIBLE_NODES)
        assert prefer(VIP4, none, frozenset({"n1"})) is none


def test_nodes_share_a_subnet_if_one_contains_the_other():
    wide, narrow = ip_network("10.0.0.0/16"), ip_network("10.0.3.0/24")
    assert share_subnet((wide,), (narrow,))
    assert share_subnet((ip_network("fd00::/64"), narrow), (ip_network("fd00::/60"),))
    assert not share_subnet((narrow,), (ip_network("10.0.4.0/24"), ip_network("fd00::/64")))
    assert not share_subnet((), (narrow,))

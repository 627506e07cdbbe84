# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.addresses import parse_range
from purelb.core.election.election import Elections, MembershipView, rank
from purelb.core.election.members import Member, Standing
from purelb.core.election.vips import VipIndex
from purelb.core.model import Reason, ServiceKey
from purelb.core.node.decisions import decide_vip, decide_vips, elect_vip
from tests.support.core.snapshots import (
    DUMMY,
    ETH0,
    GROUP,
    NET4,
    NET6,
    REMOTE_GROUP,
    VIP4,
    VIP6,
    service,
    snapshot,
)

EVERYONE = ("n1", "n2", "n3")
FIRST, EXCLUDED, EVICTED, ILL, LEAVING = Standing
WEB, SHOP = ServiceKey("default", "web"), ServiceKey("default", "shop")


def at(*nodes):
    return frozenset(nodes)


# Older than GROUP, of which it has one address.
FAR = replace(REMOTE_GROUP, name="all", ranges=(parse_range(f"{VIP4 + 1}-{VIP4 + 1}", str(NET4)),))
SERVICE = st.builds(
    service,
    addresses=st.sampled_from([(VIP4,), (VIP4, VIP6), (VIP4 + 1, VIP6)]),
    has_affinity=st.booleans(),
    is_external_local=st.booleans(),
)
STANDINGS = st.sampled_from(Standing)
NODES = st.frozensets(st.sampled_from(EVERYONE))
# The initial inputs of the decisions; CHANGE has the possible changes, each of one input.
START = {
    "members": EVERYONE,
    "standings": {},
    "web": service(),
    "shop": service("shop", [VIP4 + 1], is_external_local=True),
    "endpoints": {SHOP: at("n1")},
    "healthy": True,
    "standing": FIRST,
    "leaving": False,
    "known": frozenset(),
    "dummy": DUMMY,
    "links": (ETH0,),
}
# The inputs that are passed to a snapshot unchanged.
PLAIN = ("endpoints", "standing", "leaving", "known", "dummy", "links")
CHANGE = st.one_of(
    st.tuples(st.just("members"), NODES.map(sorted)),
    st.tuples(st.just("standings"), st.dictionaries(st.sampled_from(EVERYONE), STANDINGS)),
    st.tuples(st.just("endpoints"), st.dictionaries(st.sampled_from([WEB, SHOP]), NODES)),
    st.tuples(st.just("web"), st.none() | SERVICE),
    st.tuples(st.just("shop"), st.none() | SERVICE.map(lambda web: replace(web, key=SHOP))),
    st.tuples(st.sampled_from(["healthy", "leaving"]), st.booleans()),
    st.tuples(st.just("standing"), STANDINGS),
    st.tuples(st.just("known"), st.frozensets(st.sampled_from([VIP4, VIP6]))),
    st.tuples(st.just("dummy"), st.none() | st.just(DUMMY)),
    st.tuples(st.just("links"), st.sampled_from([(), (ETH0,)])),
)
BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])


def decide(made, vip):
    return decide_vips(made).by_address[vip]


@BOTH
class TestNodeAffinity:
    def elect(self, vip, endpoints, *services):
        services = services or (service(addresses=[vip], has_affinity=True),)
        made = snapshot(*services, members=EVERYONE, endpoints=endpoints)
        return decide(made, vip).election

    @pytest.mark.parametrize("node", EVERYONE)
    def test_only_node_with_a_ready_endpoint_wins(self, vip, node):
        assert self.elect(vip, {WEB: at(node)}).winner == node

    def test_all_candidates_compete_without_a_ready_endpoint(self, vip):
        election = self.elect(vip, {})
        assert (election.winner, election.affinity_ignored) == (rank(EVERYONE, vip)[0], True)

    def test_shared_address_goes_to_a_node_with_an_endpoint_of_one_service(self, vip):
        both = (
            service("web", [vip], has_affinity=True),
            service("shop", [vip], has_affinity=True),
        )
        assert self.elect(vip, {SHOP: at("n2")}, *both).winner == "n2"

    def test_shared_address_needs_affinity_of_all_its_services(self, vip):
        both = service("web", [vip], has_affinity=True), service("shop", [vip])
        chosen = self.elect(vip, {WEB: at(rank(EVERYONE, vip)[2])}, *both)
        assert chosen.winner == rank(EVERYONE, vip)[0]


@BOTH
class TestRemoteAddress:
    def remote(self, vip, *, endpoints=None, dummy=DUMMY, **more):
        web = service(addresses=[vip], **more)
        return snapshot(web, endpoints=endpoints or {}, dummy=dummy, groups=(REMOTE_GROUP,))

    def test_every_node_holds_it(self, vip):
        for node in EVERYONE:
            here = decide(replace(self.remote(vip), node=node), vip)
            assert (here.reason, here.link) == (Reason.ANNOUNCING_NON_LOCAL, DUMMY)

    def test_local_traffic_policy_restricts_it_to_nodes_with_endpoints(self, vip):
        near = self.remote(vip, endpoints={WEB: at("n1")}, is_external_local=True)
        far = self.remote(vip, endpoints={WEB: at("n2")}, is_external_local=True)
        assert decide(near, vip).is_here
        assert decide(far, vip).reason is Reason.NO_LOCAL_ENDPOINT

    def test_waits_for_the_dummy_interface(self, vip):
        waiting = decide_vips(self.remote(vip, dummy=None))
        assert waiting.by_address[vip].reason is Reason.NO_DUMMY_INTERFACE
        assert waiting.needs_dummy

    def test_leaving_node_gives_it_up(self, vip):
        leaving = replace(self.remote(vip), leaving=True)
        assert decide(leaving, vip).reason is Reason.LEAVING


@BOTH
class TestNodeOfAWorseStanding:
    REASONS = pytest.mark.parametrize(
        ("standing", "reason"),
        [
            (EXCLUDED, Reason.NODE_EXCLUDED),
            (EVICTED, Reason.NODE_DRAINING),
            (ILL, Reason.SERVICE_PROXY_DOWN),
            (LEAVING, Reason.NODE_DRAINING),
        ],
    )

    def among(self, vip, node, groups=(GROUP,), *, standing=LEAVING, others=FIRST, **more):
        standings = {n: standing if n == node else others for n in EVERYONE}
        members = tuple(Member(n, (NET4, NET6), standings[n]) for n in EVERYONE)
        more = {"groups": groups, "membership": MembershipView(members), **more}
        web = service(addresses=[vip], is_external_local="endpoints" in more)
        return snapshot(web, node=node, dummy=DUMMY, standing=standing, **more)

    @REASONS
    def test_winner_leaves_its_address_to_the_next_candidate(self, vip, standing, reason):
        first, second, _third = rank(EVERYONE, vip)
        given_up = decide(self.among(vip, first, standing=standing), vip)
        assert (given_up.reason, given_up.election.winner) == (reason, second)

    def test_loser_reports_not_winner(self, vip):
        last = rank(EVERYONE, vip)[2]
        assert decide(self.among(vip, last), vip).reason is Reason.NOT_WINNER

    @REASONS
    def test_remote_address_is_given_up(self, vip, standing, reason):
        remote = self.among(vip, "n1", groups=(REMOTE_GROUP,), standing=standing)
        assert decide(remote, vip).reason is reason

    @pytest.mark.parametrize("others", Standing)
    @pytest.mark.parametrize("standing", [EXCLUDED, EVICTED, ILL])
    @pytest.mark.parametrize("groups", [(GROUP,), (REMOTE_GROUP,)], ids=["local", "remote"])
    def test_it_takes_no_address_that_no_better_node_can_have(self, vip, groups, standing, others):
        first = rank(EVERYONE, vip)[0]
        made = decide(self.among(vip, first, groups, standing=standing, others=others), vip)
        assert made.is_here is (others >= standing)

    @pytest.mark.parametrize("others", Standing)
    @pytest.mark.parametrize("groups", [(GROUP,), (REMOTE_GROUP,)], ids=["local", "remote"])
    def test_a_leaving_node_has_none_in_any_case(self, vip, groups, others):
        first = rank(EVERYONE, vip)[0]
        assert not decide(self.among(vip, first, groups, others=others), vip).is_here

    @pytest.mark.parametrize("standing", [EXCLUDED, EVICTED, ILL])
    def test_remote_address_stays_where_no_better_node_has_an_endpoint(self, vip, standing):
        remote = {"groups": (REMOTE_GROUP,), "standing": standing}
        kept = self.among(vip, "n1", **remote, endpoints={WEB: at("n1")})
        assert decide(kept, vip).is_here
        given_up = self.among(vip, "n1", **remote, endpoints={WEB: at("n1", "n2")})
        assert not decide(given_up, vip).is_here


class TestReusedDecisions:
    def test_unchanged_input_returns_the_last_decisions(self):
        before = snapshot(service(), members=EVERYONE)
        first = decide_vips(before)
        assert decide_vips(replace(before, hold_deadline=None), first) is first

    def test_new_member_keeps_decisions_outside_its_subnets(self):
        before = snapshot(service(), members=EVERYONE)
        first = decide_vips(before)
        more = (*before.membership.members, Member("n9", (NET4,)))
        second = decide_vips(replace(before, membership=MembershipView(more)), first)
        assert second.by_address[VIP6] is first.by_address[VIP6]
        assert second.by_address[VIP4] is not first.by_address[VIP4]

    @given(st.lists(CHANGE, max_size=12))
    def test_any_history_leads_to_the_decisions_made_without_a_cache(self, changes):
        index, state = VipIndex(), dict(START)
        index.regroup((GROUP, FAR))
        last = None
        for name, value in [*START.items(), *changes]:
            state[name] = value
            if name in ("web", "shop"):
                index.change({ServiceKey("default", name): value})
            found = state["standings"]
            nodes = (Member(n, (NET4, NET6), found.get(n, FIRST)) for n in state["members"])
            now = snapshot(
                vips=index.vips,
                membership=MembershipView(tuple(nodes), healthy=state["healthy"]),
                **{field: state[field] for field in PLAIN},
            )
            last = decide_vips(now, last)
            fresh = Elections().after(now.membership, now.vips)
            assert dict(last.by_address) == {
                address: decide_vip(vip, elect_vip(vip, now, fresh), now)
                for address, vip in now.vips.items()
            }

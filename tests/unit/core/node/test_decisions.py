# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.election.election import Member, MembershipView, rank
from purelb.core.election.vips import VipIndex
from purelb.core.model import PoolType, Reason, ServiceKey
from purelb.core.node.decisions import decide_vips
from tests.support.core.snapshots import DUMMY, GROUP, NET4, NET6, VIP4, VIP6, service, world

BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
EVERYONE = ("n1", "n2", "n3")
WEB, SHOP = ServiceKey("default", "web"), ServiceKey("default", "shop")


def verdict(made, vip):
    return decide_vips(made).verdicts[vip]


def at(*nodes):
    return frozenset(nodes)


@BOTH
class TestNodeAffinity:
    def near(self, vip, endpoints, *services):
        services = services or (service(addresses=[vip], has_affinity=True),)
        return verdict(world(*services, members=EVERYONE, endpoints=endpoints), vip).decision

    @pytest.mark.parametrize("node", EVERYONE)
    def test_the_only_node_with_a_ready_endpoint_wins(self, vip, node):
        assert self.near(vip, {WEB: at(node)}).winner == node

    def test_without_a_ready_endpoint_all_compete(self, vip):
        fallen = self.near(vip, {})
        assert (fallen.winner, fallen.affinity_ignored) == (rank(EVERYONE, vip)[0], True)

    def test_a_shared_address_goes_where_one_of_its_services_has_an_endpoint(self, vip):
        both = (
            service("web", [vip], has_affinity=True),
            service("shop", [vip], has_affinity=True),
        )
        assert self.near(vip, {SHOP: at("n2")}, *both).winner == "n2"

    def test_a_shared_address_asks_for_nothing_unless_all_its_services_do(self, vip):
        both = service("web", [vip], has_affinity=True), service("shop", [vip])
        chosen = self.near(vip, {WEB: at(rank(EVERYONE, vip)[2])}, *both)
        assert chosen.winner == rank(EVERYONE, vip)[0]


@BOTH
class TestARemoteAddress:
    def remote(self, vip, *, endpoints=None, dummy=DUMMY, **more):
        one = service(addresses=[vip], pool_type=PoolType.REMOTE, **more)
        return world(one, endpoints=endpoints or {}, dummy=dummy)

    def test_is_on_every_node(self, vip):
        for node in EVERYONE:
            here = verdict(replace(self.remote(vip), node=node), vip)
            assert (here.reason, here.link) == (Reason.ANNOUNCING_NON_LOCAL, DUMMY)

    def test_with_local_traffic_is_only_where_an_endpoint_is_ready(self, vip):
        near = self.remote(vip, endpoints={WEB: at("n1")}, is_external_local=True)
        far = self.remote(vip, endpoints={WEB: at("n2")}, is_external_local=True)
        assert verdict(near, vip).is_here
        assert verdict(far, vip).reason is Reason.NO_LOCAL_ENDPOINT

    def test_waits_for_its_interface(self, vip):
        waiting = decide_vips(self.remote(vip, dummy=None))
        assert waiting.verdicts[vip].reason is Reason.NO_DUMMY_INTERFACE
        assert waiting.lacks_dummy

    def test_leaves_with_its_node(self, vip):
        leaving = replace(self.remote(vip), leaving=True)
        assert verdict(leaving, vip).reason is Reason.LEAVING


@BOTH
class TestADrainingNode:
    def drained(self, vip, node, **more):
        members = tuple(Member(n, (NET4, NET6), draining=n == node) for n in EVERYONE)
        one = service(addresses=[vip], **more)
        return world(one, node=node, dummy=DUMMY, membership=MembershipView(members), draining=True)

    def test_leaves_its_addresses_to_the_next_one(self, vip):
        first, second, _third = rank(EVERYONE, vip)
        given_up = verdict(self.drained(vip, first), vip)
        assert (given_up.reason, given_up.decision.winner) == (Reason.NODE_DRAINING, second)

    def test_says_nothing_of_addresses_that_it_would_not_have(self, vip):
        last = rank(EVERYONE, vip)[2]
        assert verdict(self.drained(vip, last), vip).reason is Reason.NOT_WINNER

    def test_has_no_remote_addresses_either(self, vip):
        remote = self.drained(vip, "n1", pool_type=PoolType.REMOTE)
        assert verdict(remote, vip).reason is Reason.NODE_DRAINING


class TestWhatIsKept:
    def test_nothing_new_is_judged_when_nothing_has_changed(self):
        before = world(service(), members=EVERYONE)
        first = decide_vips(before)
        assert decide_vips(replace(before, right=None), first) is first

    def test_a_member_that_comes_leaves_the_verdicts_on_others_addresses_alone(self):
        before = world(service(), members=EVERYONE)
        first = decide_vips(before)
        more = (*before.membership.members, Member("n9", (NET4,)))
        second = decide_vips(replace(before, membership=MembershipView(more)), first)
        assert second.verdicts[VIP6] is first.verdicts[VIP6]
        assert second.verdicts[VIP4] is not first.verdicts[VIP4]

    @given(
        history=st.lists(
            st.tuples(
                st.sets(st.sampled_from(EVERYONE)),
                st.sets(st.sampled_from(["web", "shop"])),
                st.sets(st.sampled_from(EVERYONE)),
                st.booleans(),
            ),
            min_size=1,
            max_size=5,
        ),
        affinity=st.booleans(),
    )
    def test_any_history_ends_in_the_judgement_made_from_nothing(self, history, affinity):
        index = VipIndex()
        index.regroup((GROUP,))
        known = {n: service(n, (VIP4, VIP6), has_affinity=affinity) for n in ("web", "shop")}
        last = None
        for members, names, endpoints, healthy in history:
            index.change({s.key: s if n in names else None for n, s in known.items()})
            now = replace(
                world(members=sorted(members)), vips=index.vips, endpoints={WEB: at(*endpoints)}
            )
            now = replace(now, membership=replace(now.membership, healthy=healthy))
            last = decide_vips(now, last)
            assert dict(last.verdicts) == dict(decide_vips(now).verdicts)

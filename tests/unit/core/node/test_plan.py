# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.addresses import parse_range
from purelb.core.election.election import MembershipView
from purelb.core.holding.deadline import HoldDeadline
from purelb.core.model import ExternalSource, InterfaceAddress, PoolType, Reason
from purelb.core.names import ADDRESS_PROTOCOL
from purelb.core.node.decisions import decide_vips
from purelb.core.node.plan import plan
from purelb.core.node.snapshot import membership_view_of
from purelb.core.settings import AddressConfig
from tests.support.core.snapshots import (
    DUMMY,
    ETH0,
    GROUP,
    NOW,
    OWN4,
    OWN6,
    REMOTE_GROUP,
    VIP4,
    VIP6,
    on_dummy,
    on_eth0,
    planned,
    service,
    snapshot,
)

BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])


def carried_out(made, before):
    """Addresses on the interfaces after a plan was carried out."""
    gone = {(r.held.link, r.held.address) for r in made.removes}
    put = {(p.link, p.address): p for p in made.puts}
    kept = [h for h in before if (h.link, h.address) not in gone | put.keys()]
    return (
        *kept,
        *(
            InterfaceAddress(
                p.link,
                p.address,
                p.prefixlen,
                NOW + p.valid_lft,
                NOW + p.preferred_lft,
                p.no_prefix_route,
                deprecated=p.preferred_lft == 0,
                protocol=ADDRESS_PROTOCOL,
            )
            for p in put.values()
        ),
    )


class TestOrder:
    """The kernel has an own address first, as programs take the first one for the node's."""

    LATER = replace(OWN4, address=OWN4.address + 1)

    def replaced(self, *addresses, **more):
        wanted = service(addresses=[VIP4, VIP6])
        made = planned(snapshot(wanted, addresses=addresses, **more))
        assert [r.held.address for r in made.removes] == [p.address for p in made.puts]
        assert all(put.is_new for put in made.puts)
        return [put.address for put in made.puts]

    def test_ours_go_behind_when_the_own_address_was_replaced(self):
        assert self.replaced(on_eth0(VIP4), self.LATER, on_eth0(VIP6), OWN6) == [VIP4]

    def test_ours_stay_behind_any_own_address(self):
        assert self.replaced(OWN4, on_eth0(VIP4), self.LATER, on_eth0(VIP6), OWN6) == []

    @pytest.mark.parametrize(
        "other",
        [
            pytest.param(replace(OWN4, address=ip_address("169.254.3.4")), id="link-local"),
            pytest.param(replace(OWN4, link=ETH0.index + 1), id="on another link"),
            pytest.param(replace(OWN6, address=OWN6.address + 1), id="of the other family"),
        ],
    )
    def test_others_do_not_count(self, other):
        assert self.replaced(other, on_eth0(VIP4), self.LATER, on_eth0(VIP6), OWN6) == [VIP4]
        assert self.replaced(OWN4, on_eth0(VIP4), other, on_eth0(VIP6), OWN6) == []

    def test_on_the_dummy_interface_there_is_no_order(self):
        later = replace(self.LATER, link=DUMMY.index)
        addresses = (OWN4, on_dummy(VIP4), later)
        groups = {"groups": (REMOTE_GROUP,), "dummy": DUMMY, "dummies": frozenset({DUMMY.index})}
        wanted = service(addresses=[VIP4], pool_type=PoolType.REMOTE)
        assert planned(snapshot(wanted, addresses=addresses, **groups)).removes == ()


@BOTH
class TestWinner:
    def test_puts_a_missing_address_on_the_interface_of_its_subnet(self, vip):
        fresh = snapshot(service(addresses=[vip]))
        (put,) = planned(fresh).puts
        assert (put.link, put.address, put.is_new) == (ETH0.index, vip, True)
        assert decide_vips(fresh).by_address[vip].reason is Reason.ELECTION_WON

    def test_lifetime_is_refreshed_when_half_of_it_is_left(self, vip):
        made = planned(snapshot(service(addresses=[vip]), hold_until=NOW + 9.7))
        (put,) = made.puts
        assert made.refresh_at == NOW + put.valid_lft / 2
        assert planned(snapshot()).refresh_at is None

    def test_lifetime_is_limited_by_the_lease(self, vip):
        (put,) = planned(snapshot(service(addresses=[vip]), hold_until=NOW + 9.7)).puts
        assert (put.valid_lft, put.preferred_lft) == (8, 8 if vip.version == 4 else 0)

    def test_lifetime_is_limited_by_the_configuration(self, vip):
        config = AddressConfig(valid_lifetime=60, preferred_lifetime=30)
        long = snapshot(service(addresses=[vip]), hold_until=NOW + 600, config=config)
        (put,) = planned(long).puts
        assert (put.valid_lft, put.preferred_lft) == (60, 30)

    def test_never_makes_it_permanent(self, vip):
        config = AddressConfig(valid_lifetime=0, preferred_lifetime=20)
        (put,) = planned(snapshot(service(addresses=[vip]), config=config)).puts
        assert (put.valid_lft, put.preferred_lft) == (10, 10)

    def test_is_never_a_source_if_the_configuration_says_so(self, vip):
        never = snapshot(service(addresses=[vip]), config=AddressConfig(preferred_lifetime=0))
        (put,) = planned(never).puts
        assert (put.valid_lft, put.preferred_lft) == (10, 0)
        preferred = on_eth0(vip, deprecated=False, preferred_until=NOW + 10)
        (put,) = planned(replace(never, addresses=(OWN4, OWN6, preferred))).puts
        assert (put.preferred_lft, put.is_new) == (0, False)
        deprecated = on_eth0(vip, deprecated=True, preferred_until=NOW)
        assert planned(replace(never, addresses=(OWN4, OWN6, deprecated))).puts == ()

    def test_does_nothing_about_a_fresh_address(self, vip):
        made = planned(snapshot(service(addresses=[vip]), held=[on_eth0(vip)]))
        assert (made.puts, made.removes) == ((), ())

    def test_renews_an_address_after_its_lease_was_renewed(self, vip):
        aging = on_eth0(vip, lifetime=5)
        (put,) = planned(snapshot(service(addresses=[vip]), held=[aging])).puts
        assert (put.valid_lft, put.is_new) == (10, False)

    def test_permanent_address_gets_a_lifetime(self, vip):
        (put,) = planned(
            snapshot(service(addresses=[vip]), held=[on_eth0(vip, lifetime=None)])
        ).puts
        assert put.valid_lft == 10

    def test_replaces_an_address_with_a_wrong_mask(self, vip):
        wrong = on_eth0(vip, prefixlen=30)
        made = planned(snapshot(service(addresses=[vip]), held=[wrong]))
        assert [r.held for r in made.removes] == [wrong]
        assert [p.is_new for p in made.puts] == [True]

    def test_address_with_wrong_prefix_route_is_replaced(self, vip):
        routed = on_eth0(vip, no_prefix_route=False)
        made = planned(snapshot(service(addresses=[vip]), held=[routed]))
        assert [r.held for r in made.removes] == [routed]
        assert [p.is_new for p in made.puts] == [True]

    def test_address_with_wrong_preferred_lifetime_is_refreshed(self, vip):
        config = AddressConfig(preferred_lifetime=3)
        (put,) = planned(
            snapshot(service(addresses=[vip]), held=[on_eth0(vip)], config=config)
        ).puts
        assert (put.valid_lft, put.preferred_lft, put.is_new) == (10, 3, False)

    def test_puts_back_an_address_that_failed_duplicate_detection(self, vip):
        failed = on_eth0(vip, dad_failed=True)
        made = planned(snapshot(service(addresses=[vip]), held=[failed]))
        assert [r.held for r in made.removes] == [failed]
        assert [p.is_new for p in made.puts] == [True]

    def test_skips_duplicate_detection_only_if_the_group_says_so(self, vip):
        (careful,) = planned(snapshot(service(addresses=[vip]))).puts
        quick_group = replace(GROUP, skip_dad=True)
        (quick,) = planned(snapshot(service(addresses=[vip]), groups=(quick_group,))).puts
        assert (careful.no_dad, quick.no_dad) == (False, True)

    def test_of_another_node_is_put_without_detection(self, vip):
        made = snapshot(service(addresses=[vip]))
        (put,) = plan(decide_vips(made), made, moved={vip}, now=NOW).puts
        assert (put.no_dad, put.usable_at_once) == (True, True)

    @pytest.mark.parametrize("aggregation", [None, 4])
    def test_puts_each_address_on_its_own_whatever_mask_its_pool_has(self, vip, aggregation):
        ranges = GROUP.ranges
        if aggregation is not None:
            ranges = tuple(replace(r, aggregation=r.subnet.prefixlen + 4) for r in ranges)
        group = replace(GROUP, ranges=ranges)
        (put,) = planned(snapshot(service(addresses=[vip]), groups=(group,))).puts
        assert put.prefixlen == vip.max_prefixlen

    @pytest.mark.parametrize("lifetime", [10.0, 5.0])
    def test_replaces_what_agents_before_put_with_the_mask_of_the_pool(self, vip, lifetime):
        held = on_eth0(vip, prefixlen=24 if vip.version == 4 else 64, lifetime=lifetime)
        made = planned(snapshot(service(addresses=[vip]), held=[held]))
        assert [r.held for r in made.removes] == [held]
        assert [(p.prefixlen, p.is_new) for p in made.puts] == [(vip.max_prefixlen, True)]

    def test_puts_nothing_when_less_than_a_second_is_left(self, vip):
        last = snapshot(service(addresses=[vip]), held=[on_eth0(vip)], hold_until=NOW + 0.9)
        made = planned(last)
        assert (made.puts, len(made.removes)) == ((), 1)

    @pytest.mark.parametrize(
        ("late", "expected"),
        [(0.0, (8, 3)), (0.7, (8, 3)), (0.8, (7, 3)), (6.5, (2, 2)), (7.7, (1, 1))],
    )
    def test_gets_no_more_than_is_left_when_it_is_sent(self, vip, late, expected):
        config = AddressConfig(preferred_lifetime=3)
        made = snapshot(service(addresses=[vip]), hold_until=NOW + 9.75, config=config)
        (put,) = planned(made).puts
        sent = put.sent_at(NOW + late)
        assert (sent.valid_lft, sent.preferred_lft) == expected

    def test_is_not_sent_when_less_than_a_second_is_left(self, vip):
        (put,) = planned(snapshot(service(addresses=[vip]), hold_until=NOW + 9.75)).puts
        assert put.sent_at(NOW + 7.8) is None
        assert [put.may_last(NOW + late) for late in (8.7, 8.8)] == [True, False]

    def test_puts_nothing_without_a_hold_deadline(self, vip):
        assert planned(snapshot(service(addresses=[vip]), hold_deadline=None)).puts == ()

    def test_puts_nothing_that_no_group_has(self, vip):
        stray = snapshot(service(addresses=[vip]), groups=())
        assert planned(stray).puts == ()
        assert decide_vips(stray).by_address[vip].reason is Reason.OUTSIDE_POOLS

    def test_puts_no_gateway_of_its_own(self, vip):
        routed = replace(ETH0, gateways=frozenset({vip}))
        for groups in ((GROUP,), (REMOTE_GROUP,)):
            made = snapshot(
                service(addresses=[vip]), groups=groups, dummy=DUMMY, all_links=(routed, DUMMY)
            )
            assert planned(made).puts == ()
            assert decide_vips(made).by_address[vip].reason is Reason.GATEWAY_ADDRESS

    def test_has_nowhere_to_put_it_without_an_interface_in_its_subnet(self, vip):
        bare = snapshot(service(addresses=[vip]), addresses=())
        assert planned(bare).puts == ()
        assert decide_vips(bare).by_address[vip].reason is Reason.NO_LOCAL_INTERFACE

    def test_never_takes_a_vip_for_its_own_subnet(self, vip):
        alone = snapshot(service(addresses=[vip]), addresses=(on_eth0(vip, lifetime=5),))
        assert decide_vips(alone).by_address[vip].reason is Reason.NO_LOCAL_INTERFACE


@BOTH
class TestLosers:
    def loser(self, vip, **more):
        everyone = ("n1", "n2", "n3")
        candidates = {
            n: snapshot(service(addresses=[vip]), node=n, members=everyone, **more)
            for n in everyone
        }
        decisions = {n: decide_vips(w).by_address[vip] for n, w in candidates.items()}
        return next(candidates[n] for n, v in decisions.items() if v.election.winner != n)

    def test_withdraws_it(self, vip):
        held = on_eth0(vip)
        made = planned(self.loser(vip, held=[held]))
        assert [(r.held, r.reason) for r in made.removes] == [(held, Reason.NOT_WINNER)]
        assert made.puts == ()

    def test_exactly_one_node_wins(self, vip):
        everyone = ("n1", "n2", "n3")
        plans = [
            planned(snapshot(service(addresses=[vip]), node=n, members=everyone)) for n in everyone
        ]
        assert sum(len(p.puts) for p in plans) == 1

    def test_withdraws_after_the_hold_deadline(self, vip):
        deadline = HoldDeadline(NOW - 0.1, NOW + 2.9)
        members = snapshot().membership.members
        lapsed = membership_view_of(members, deadline, listed=True, now=NOW)
        made = planned(
            snapshot(
                service(addresses=[vip]),
                held=[on_eth0(vip)],
                hold_deadline=deadline,
                membership=lapsed,
            )
        )
        assert [r.reason for r in made.removes] == [Reason.LEASE_UNHEALTHY]

    def test_withdraws_an_address_of_no_service(self, vip):
        made = planned(snapshot(held=[on_eth0(vip)]))
        assert [r.reason for r in made.removes] == [Reason.NO_SERVICE]

    def test_withdraws_when_no_node_is_eligible(self, vip):
        made = planned(
            snapshot(service(addresses=[vip]), held=[on_eth0(vip)], membership=MembershipView())
        )
        assert [r.reason for r in made.removes] == [Reason.NO_ELIGIBLE_NODES]

    def test_leaves_services_of_others_alone(self, vip):
        far = {4: ip_address("192.0.2.1"), 6: ip_address("2001:db8::1")}[vip.version]
        for stranger in (
            service(addresses=[far], allocated_by_us=False),
            service(addresses=[vip], is_load_balancer=False),
            service(addresses=[vip], is_terminating=True),
        ):
            assert decide_vips(snapshot(stranger)).by_address == {}

    def test_does_not_put_remote_addresses_on_a_real_interface(self, vip):
        remote = snapshot(service(addresses=[vip]), groups=(REMOTE_GROUP,))
        assert planned(remote).puts == ()
        assert decide_vips(remote).by_address[vip].reason is Reason.NO_DUMMY_INTERFACE


@BOTH
class TestRemoteAddress:
    def on_dummy(self, vip, **more):
        more = {"groups": (REMOTE_GROUP,), **more}
        remote = service(addresses=[vip], pool_type=PoolType.REMOTE)
        return snapshot(remote, dummy=DUMMY, dummies=frozenset({DUMMY.index}), **more)

    def held(self, vip, **more):
        return replace(on_dummy(vip), **more)

    def test_is_put_on_the_dummy_interface_for_ever_and_with_its_route(self, vip):
        (put,) = planned(self.on_dummy(vip)).puts
        assert put.sent_at(NOW + 1000) is put
        assert put.may_last(NOW + 1000)
        preferred = None if vip.version == 4 else 0
        assert (put.link, put.valid_lft, put.preferred_lft) == (DUMMY.index, None, preferred)
        assert put.no_prefix_route is False

    def test_has_the_prefix_length_of_its_pool(self, vip):
        narrow = replace(
            REMOTE_GROUP,
            ranges=tuple(replace(r, aggregation=r.first.max_prefixlen) for r in GROUP.ranges),
        )
        (put,) = planned(self.on_dummy(vip, groups=(narrow,))).puts
        assert put.prefixlen == vip.max_prefixlen

    def test_of_a_group_that_does_not_say_is_a_single_host(self, vip):
        giving = replace(REMOTE_GROUP, source=ExternalSource("acme", "/s"))
        (put,) = planned(self.on_dummy(vip, groups=(giving,))).puts
        assert put.prefixlen == vip.max_prefixlen

    def test_what_a_tenant_writes_puts_no_local_address_there(self, vip):
        for forged in ({}, {"allocated_from": "x"}, {"skip_dad": True}):
            remote = service(addresses=[vip], pool_type=PoolType.REMOTE, **forged)
            made = planned(snapshot(remote, dummy=DUMMY, dummies=frozenset({DUMMY.index})))
            assert [(p.link, p.no_dad) for p in made.puts] == [(ETH0.index, False)]

    def test_stays_as_it_is_when_it_is_there(self, vip):
        made = planned(self.on_dummy(vip, held=[self.held(vip)]))
        assert (made.puts, made.removes) == ((), ())

    def test_with_a_foreign_lifetime_becomes_permanent_again(self, vip):
        aging = self.held(vip, expires_at=NOW + 5, preferred_until=NOW + 5)
        (put,) = planned(self.on_dummy(vip, held=[aging])).puts
        assert (put.valid_lft, put.is_new) == (None, False)

    @pytest.mark.parametrize(("left", "expected"), [(90, ()), (40, (100,))], ids=["young", "old"])
    def test_with_a_lifetime_is_refreshed_at_half_of_it(self, vip, left, expected):
        aging = self.held(vip, expires_at=NOW + left, preferred_until=NOW + left)
        config = AddressConfig(100, 100, no_prefix_route=False)
        made = planned(self.on_dummy(vip, held=[aging], dummy_config=config))
        assert tuple(p.valid_lft for p in made.puts) == expected

    def test_is_removed_with_its_last_service_although_permanent(self, vip):
        empty = snapshot(dummies=frozenset({9}), held=[self.held(vip)])
        assert [r.reason for r in planned(empty).removes] == [Reason.NO_SERVICE]

    def test_stays_when_the_lease_is_lost(self, vip):
        lost = self.on_dummy(vip, held=[self.held(vip)], hold_deadline=None)
        assert planned(replace(lost, membership=MembershipView(healthy=False))).removes == ()

    def test_never_gets_a_preference_longer_than_its_life(self, vip):
        config = AddressConfig(100, 50, no_prefix_route=False)
        (put,) = planned(self.on_dummy(vip, dummy_config=config)).puts
        assert (put.valid_lft, put.preferred_lft) == (100, 50)

    @pytest.mark.parametrize(("configured", "preferred"), [(0, 0), (50, None)])
    def test_without_end_is_a_source_or_is_none_as_configured(self, vip, configured, preferred):
        config = AddressConfig(0, configured, no_prefix_route=False)
        wrong = self.held(vip, deprecated=configured != 0, preferred_until=None)
        made = self.on_dummy(vip, held=[wrong], dummy_config=config)
        (put,) = planned(made).puts
        assert (put.valid_lft, put.preferred_lft, put.is_new) == (None, preferred, False)
        right = replace(wrong, deprecated=configured == 0)
        assert planned(replace(made, addresses=(OWN4, OWN6, right))).puts == ()


class TestForeignAddresses:
    def test_an_address_outside_all_pools_stays(self):
        stranger = on_eth0(ip_address("172.28.1.99"), lifetime=60, protocol=0)
        assert planned(snapshot(held=[stranger])).removes == ()

    def test_the_nodes_own_address_stays_even_inside_a_pool(self):
        everything = replace(
            GROUP,
            ranges=(
                parse_range("172.28.1.0/24", "172.28.1.0/24"),
                parse_range("fd28::/64", "fd28::/64"),
            ),
        )
        assert planned(snapshot(groups=(everything,))).removes == ()

    def test_node_address_with_a_lifetime_stays(self):
        for keeps_marks in (True, False):
            leased = on_eth0(VIP4, lifetime=60, protocol=0)
            known = frozenset({VIP4})
            made = planned(snapshot(held=[leased], known=known, keeps_marks=keeps_marks))
            assert made.removes == ()

    def test_node_address_is_never_a_vip(self):
        odd = snapshot(service(addresses=[VIP6]), known=frozenset({VIP6}))
        assert planned(odd).puts == ()
        assert decide_vips(odd).by_address[VIP6].reason is Reason.NODE_ADDRESS

    def test_own_address_of_a_deleted_pool_is_removed(self):
        held = on_eth0(VIP4)
        made = planned(snapshot(held=[held], groups=()))
        assert [r.held for r in made.removes] == [held]


@given(
    holding=st.sets(st.sampled_from([VIP4, VIP6, GROUP.ranges[0].last, GROUP.ranges[1].last])),
    serving=st.sets(st.sampled_from([VIP4, VIP6, GROUP.ranges[0].last, GROUP.ranges[1].last])),
    lifetime=st.floats(0.0, 20.0),
    members=st.sets(st.sampled_from(["n1", "n2", "n3"])),
    left=st.floats(-5.0, 10.0),
)
def test_applied_plan_leaves_nothing_to_do(holding, serving, lifetime, members, left):
    deadline = HoldDeadline(NOW + left - 3, NOW + left)
    before = tuple(on_eth0(a, lifetime=lifetime) for a in holding)
    start = snapshot(
        service(addresses=serving), members=sorted(members), hold_deadline=deadline, held=before
    )
    healthy = membership_view_of(start.membership.members, deadline, listed=True, now=NOW)
    start = replace(start, membership=healthy)
    made = planned(start)
    after = carried_out(made, start.addresses)
    again = planned(replace(start, addresses=after))
    assert (again.removes, again.puts) == ((), ())
    assert {OWN4, OWN6} <= set(after)
    for held in after:
        # The kernel rounds up what it reports, and is up to a second late: together no longer than
        # the right.
        assert held.expires_at is None or held.expires_at < max(deadline.hold_until, NOW + 1)

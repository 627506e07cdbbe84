# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.election.endpoints import EndpointIndex
from purelb.core.election.outside import OutsideAddress, outside_text, read_outside
from purelb.core.election.vips import VipIndex, vips_of
from purelb.core.model import EndpointSlice, ExternalSource, PoolType, ServiceKey
from tests.support.core.snapshots import GROUP, REMOTE_GROUP, VIP4, VIP6, service

WEB, SHOP = ServiceKey("default", "web"), ServiceKey("default", "shop")
ONE, TWO = ServiceKey("default", "web-a"), ServiceKey("default", "web-b")


def index(*services):
    made = VipIndex()
    made.regroup((GROUP,))
    made.change({service.key: service for service in services})
    return made


def hear(made, *known):
    """Let each of these stand in a Lease of its own."""
    made.hear(frozenset(outside_text([OutsideAddress(a, t, key)]) for a, key, t in known))


def told(made):
    return [(k.address, k.service, k.pool_type) for k in read_outside(made.outside)]


class TestVipIndex:
    def test_a_shared_address_goes_with_the_last_of_its_services(self):
        shared = index(service("web"), service("shop"))
        assert shared.vips[VIP4].services == (SHOP, WEB)
        shared.change({WEB: None})
        assert shared.vips[VIP4].services == (SHOP,)
        shared.change({SHOP: None})
        assert shared.vips == {}

    def test_a_vip_that_stays_as_it_is_stays_the_same_record(self):
        made = index(service("web", [VIP4]))
        before = made.vips[VIP4]
        made.change({SHOP: service("shop", [VIP6])})
        made.regroup((GROUP,))
        assert made.vips[VIP4] is before

    def test_a_service_that_is_no_longer_served_has_no_address(self):
        made = index(service("web"))
        made.change({WEB: service("web", is_load_balancer=False)})
        assert made.vips == {}

    def test_a_change_of_the_groups_reaches_every_vip(self):
        made = index(service("web"))
        made.regroup((replace(GROUP, pool_type=PoolType.REMOTE),))
        assert made.vips[VIP4].pool_type is PoolType.REMOTE

    def test_endpoints_matter_to_few(self):
        cases = {
            (PoolType.LOCAL, False, False): False,
            (PoolType.LOCAL, True, False): False,
            (PoolType.LOCAL, False, True): True,
            (PoolType.REMOTE, False, True): False,
            (PoolType.REMOTE, True, False): True,
        }
        for (pool_type, local, affinity), expected in cases.items():
            made = index(service(is_external_local=local, has_affinity=affinity))
            made.regroup((replace(GROUP, pool_type=pool_type),))
            assert made.vips[VIP4].depends_on_endpoints is expected

    def test_the_group_that_holds_an_address_decides_what_it_is(self):
        forged = {"pool_type": PoolType.REMOTE, "skip_dad": True, "allocated_from": "theirs"}
        theirs = replace(
            GROUP, name="theirs", pool_type=PoolType.REMOTE, source=ExternalSource("acme", "/s")
        )
        made = index(service("web", **forged), service("shop", **forged))
        made.regroup((theirs, GROUP))
        for address, prefixlen in ((VIP4, 24), (VIP6, 64)):
            vip = made.vips[address]
            assert (vip.pool_type, vip.skip_dad) == (PoolType.LOCAL, False)
            assert vip.prefixlen == prefixlen

    def test_of_overlapping_groups_the_oldest_decides(self):
        old = replace(GROUP, name="z", created="2026-01-01T00:00:00Z")
        young = replace(REMOTE_GROUP, name="a", created="2026-02-01T00:00:00Z", skip_dad=True)
        made = index(service())
        made.regroup((young, old))
        assert made.vips[VIP4].pool_type is PoolType.LOCAL

    def test_an_address_that_no_group_has_is_no_vip_of_a_pool(self):
        made = VipIndex()
        made.change({WEB: service(pool_type=PoolType.REMOTE, allocated_from=GROUP.name)})
        assert not made.vips[VIP4].is_in_pool
        made.regroup((GROUP,))
        assert made.vips[VIP4].is_in_pool

    def test_an_address_that_a_group_had_stays_as_it_was(self):
        made = index(service())
        before = made.vips[VIP4]
        made.regroup(())
        assert made.vips[VIP4] is before
        # Regardless of its Service from then on, also with another one that shares the address.
        made.change({WEB: service(pool_type=PoolType.REMOTE, is_external_local=True)})
        made.change({SHOP: service("shop")})
        made.change({WEB: None})
        kept = made.vips[VIP4]
        assert kept.is_in_pool
        assert (kept.pool_type, kept.prefixlen) == (PoolType.LOCAL, 24)
        assert kept.services == (SHOP,)

    @pytest.mark.parametrize("at_once", [True, False])
    def test_no_other_service_gets_what_no_group_has_any_more(self, at_once):
        made = index(service())
        made.regroup(())
        changes = {WEB: None, SHOP: service("shop")}
        for change in [changes] if at_once else [{key: changes[key]} for key in changes]:
            made.change(change)
        assert made.vips[VIP4].services == (SHOP,)
        assert not made.vips[VIP4].is_in_pool

    @pytest.mark.parametrize("pool_type", PoolType)
    def test_what_another_agent_knew_in_a_pool_stays_with_its_service(self, pool_type):
        made = VipIndex()
        made.change({WEB: service(), SHOP: service("shop", [VIP4])})
        hear(made, *((vip, WEB, pool_type) for vip in (VIP4, VIP6)))
        for vip in (VIP4, VIP6):
            kept = made.vips[vip]
            assert (kept.is_in_pool, kept.pool_type, kept.prefixlen) == (True, pool_type, None)
        before = made.vips
        hear(made, *((vip, WEB, pool_type) for vip in (VIP4, VIP6)))
        assert made.vips is before
        # Regardless of what is said from then on; and it is told to others in turn.
        made.hear(frozenset())
        assert told(made) == [(VIP4, SHOP, pool_type), (VIP6, WEB, pool_type)]
        made.regroup((GROUP,))
        assert made.vips[VIP4].prefixlen == 24
        assert told(made) == []

    @pytest.mark.parametrize("keys", [(WEB, SHOP), (SHOP, WEB)], ids=str)
    def test_agents_may_name_different_services_of_a_shared_address(self, keys):
        made = VipIndex()
        hear(made, *((VIP4, key, PoolType.LOCAL) for key in keys))
        made.change({SHOP: service("shop")})
        assert made.vips[VIP4].is_in_pool
        assert not made.vips[VIP6].is_in_pool

    def test_what_another_agent_knew_in_a_pool_is_no_other_services(self):
        made = VipIndex()
        made.change({SHOP: service("shop")})
        hear(made, *((vip, WEB, PoolType.LOCAL) for vip in (VIP4, VIP6)))
        assert not any(vip.is_in_pool for vip in made.vips.values())
        assert told(made) == []

    def test_what_a_pool_has_is_as_the_pool_says(self):
        made = index(service())
        before = made.vips
        hear(made, (VIP4, WEB, PoolType.REMOTE))
        assert made.vips == before
        assert told(made) == []

    def test_an_address_that_its_service_has_no_more_is_not_reported(self):
        made = index(service())
        made.regroup(())
        assert told(made) == [(VIP4, WEB, PoolType.LOCAL), (VIP6, WEB, PoolType.LOCAL)]
        made.change({WEB: service("web", [VIP6])})
        assert told(made) == [(VIP6, WEB, PoolType.LOCAL)]

    @given(
        st.lists(
            st.dictionaries(
                st.sampled_from([WEB, SHOP]),
                st.one_of(st.none(), st.sets(st.sampled_from([VIP4, VIP6]))),
            ),
            max_size=6,
        )
    )
    def test_any_history_leads_to_the_current_services(self, history):
        made, known = index(), {}
        for changes in history:
            records = {
                key: None if vips is None else service(key.name, sorted(vips, key=str))
                for key, vips in changes.items()
            }
            known.update(records)
            made.change(records)
        expected = vips_of([s for s in known.values() if s], (GROUP,))
        assert set(made.vips.values()) == set(expected)


class TestEndpointIndex:
    def test_nodes_of_all_slices_count_until_the_last_slice_is_deleted(self):
        index = EndpointIndex()
        index.change({ONE: EndpointSlice(WEB, frozenset({"n1"}))})
        assert index.nodes == {WEB: {"n1"}}
        index.change({TWO: EndpointSlice(WEB, frozenset({"n2"}))})
        assert index.nodes == {WEB: {"n1", "n2"}}
        index.change({ONE: None})
        assert index.nodes == {WEB: {"n2"}}
        index.change({TWO: EndpointSlice(WEB, frozenset())})
        assert index.nodes == {}
        before = index.nodes
        index.change({TWO: None})
        assert index.nodes is before

    def test_change_without_effect_keeps_the_same_mapping(self):
        index = EndpointIndex()
        index.change({ONE: EndpointSlice(WEB, frozenset({"n1"}))})
        before = index.nodes
        index.change({TWO: EndpointSlice(WEB, frozenset({"n1"}))})
        assert index.nodes is before

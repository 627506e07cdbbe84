# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.election.endpoints import EndpointIndex
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
        # Whatever its Service says from then on, also with another one that shares the address.
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

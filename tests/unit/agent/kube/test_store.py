# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the node agent derives from its tables, and which changes wake its loop."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

import pytest

from purelb.core.election.claims import claimed
from purelb.core.election.members import (
    EXCLUDE_RULE,
    PROXY_RULE,
    Member,
    ServiceProxy,
    Standing,
)
from purelb.core.holding.deadline import HoldDeadline
from purelb.core.model import ServiceKey
from purelb.core.names import DRAINING_TAINTS, EXCLUDE_LABEL, SPOT_TAINT_KEY
from purelb_agent.kube.store import NodeStore
from tests.support.agent.kubernetes_objects import (
    config_object,
    group_object,
    lease_object,
    node_object,
    service_object,
    slice_object,
)
from tests.support.core.snapshots import NET4, NET6, VIP4, VIP6

TABLES = ("services", "groups", "slices", "leases", "configs", "nodes")


class TestNodeStore:
    """The loop starts when every table is listed."""

    @pytest.mark.parametrize("last", TABLES)
    async def test_the_last_list_wakes_the_loop_even_if_it_is_empty(self, last):
        store = NodeStore("n1", classes=claimed(unclassed=True), drains=True)
        for name in (*(name for name in TABLES if name != last), last):
            await store.changed.wait(seconds=0)
            getattr(store, name).replace([], asked_at=0.0)
        assert store.listed
        assert await store.changed.wait(seconds=0)

    @pytest.mark.parametrize("name", ["slices", "nodes"])
    async def test_a_later_list_without_news_lets_the_loop_sleep(self, name):
        store = NodeStore("n1", classes=claimed(unclassed=True), drains=True)
        for table in TABLES:
            getattr(store, table).replace([], asked_at=0.0)
        await store.changed.wait(seconds=0)
        getattr(store, name).replace([], asked_at=1.0)
        assert not await store.changed.wait(seconds=0)


@pytest.fixture
async def store():
    """A store in which everything is listed and that has no news."""
    made = NodeStore("n1", classes=claimed(unclassed=True), drains=True)
    for table in TABLES:
        getattr(made, table).replace([], asked_at=0.0)
    await made.changed.wait(seconds=0)
    return made


async def is_woken(store):
    return await store.changed.wait(seconds=0)


class TestDerivedState:
    async def test_services_and_groups_become_vips(self, store):
        store.groups.put(group_object())
        store.services.put(service_object())
        assert set(store.vips) == {VIP4, VIP6}
        assert await is_woken(store)
        store.services.drop(service_object())
        assert store.vips == {}
        assert await is_woken(store)

    async def test_what_agents_knew_in_a_pool_is_known_by_their_leases_and_the_own_one(self, store):
        store.services.put(service_object())
        texts = (f"{VIP4},local,default/web", f"{VIP6},local,default/web")
        store.leases.replace(
            [lease_object(n, outside=t) for n, t in zip(("n1", "n2"), texts, strict=True)],
            asked_at=0.0,
        )
        assert await is_woken(store)
        assert all(vip.is_in_pool for vip in store.vips.values())
        assert store.outside == " ".join(texts)

    async def test_endpoints_of_a_service_are_the_nodes_of_its_slices(self, store):
        store.slices.put(slice_object("web-a", "n1"))
        store.slices.put(slice_object("web-b", "n2"))
        assert store.endpoints == {ServiceKey("default", "web"): {"n1", "n2"}}
        assert await is_woken(store)

    async def test_the_own_node_gives_labels_uid_and_taint(self, store):
        taint = DRAINING_TAINTS[0]
        store.nodes.put(node_object("n1", "10.0.0.1", taints=(taint,), labels={"rack": "1"}))
        assert (store.labels, store.node_uid, store.taint) == ({"rack": "1"}, "uid-n1", taint)
        assert store.known_addresses == {ip_address("10.0.0.1")}
        assert store.marked == {"n1": ("uid-n1", taint, False)}
        assert await is_woken(store)

    async def test_a_heartbeat_of_a_node_lets_the_loop_sleep(self, store):
        store.nodes.put(node_object("n1"))
        await is_woken(store)
        beat = node_object("n1")
        beat["metadata"]["resourceVersion"] = "2"
        store.nodes.put(beat)
        assert not await is_woken(store)

    async def test_without_draining_taints_change_nothing(self):
        store = NodeStore("n1", classes=claimed(unclassed=True), drains=False)
        store.nodes.put(node_object("n1", taints=DRAINING_TAINTS[:1]))
        assert store.taint == ""
        assert store.marked == {}

    async def test_a_new_configuration_wakes_the_loop(self, store):
        store.configs.put(config_object())
        assert await is_woken(store)


class TestHoldDeadline:
    async def test_a_new_deadline_wakes_the_loop(self, store):
        store.set_hold_deadline(HoldDeadline(1.0, 2.0))
        assert await is_woken(store)

    async def test_the_same_deadline_lets_it_sleep(self, store):
        store.set_hold_deadline(HoldDeadline(1.0, 2.0))
        await is_woken(store)
        store.set_hold_deadline(HoldDeadline(1.0, 2.0))
        assert not await is_woken(store)


class TestMembers:
    async def test_this_node_is_one_by_its_right_with_what_its_lease_lists(self, store):
        store.leases.put(lease_object("n0"))
        store.leases.put(lease_object("n1"))
        store.leases.put(lease_object("n2", subnets=(NET6,)))
        assert [member.node for member in store.members()[0]] == ["n0", "n2"]
        store.set_hold_deadline(HoldDeadline(1.0, 2.0), (NET4,))
        members = (Member("n0", (NET4, NET6)), Member("n1", (NET4,)), Member("n2", (NET6,)))
        assert store.members() == (members, Standing.FIRST)

    async def test_other_subnets_wake_the_loop(self, store):
        store.set_hold_deadline(HoldDeadline(1.0, 2.0), (NET4,))
        await is_woken(store)
        store.set_hold_deadline(HoldDeadline(1.0, 2.0), (NET6,))
        assert await is_woken(store)

    async def test_each_has_the_taint_of_its_node(self, store):
        store.set_hold_deadline(HoldDeadline(1.0, 2.0), (NET4,))
        store.leases.put(lease_object("n2"))
        for node, taint in zip(("n1", "n2"), (SPOT_TAINT_KEY, DRAINING_TAINTS[0]), strict=True):
            store.nodes.put(node_object(node, taints=(taint,)))
        members, own = store.members()
        assert [member.standing for member in members] == [Standing.EVICTED, Standing.DRAINED]
        assert own is Standing.EVICTED

    async def test_this_node_has_a_standing_without_a_right_too(self, store):
        store.nodes.put(node_object("n1", taints=DRAINING_TAINTS[:1]))
        assert store.members() == ((), Standing.DRAINED)

    async def test_the_label_counts_where_the_agents_of_all_nodes_look_at_it(self):
        store = NodeStore("n1", classes=claimed(unclassed=True), drains=True, excludes=True)
        store.nodes.put(node_object("n1", labels={EXCLUDE_LABEL: ""}))
        assert store.members()[1] is Standing.EXCLUDED
        store.leases.put(lease_object("n2"))
        assert store.members()[1] is Standing.FIRST
        store.leases.put(lease_object("n2", version=2, rules=(EXCLUDE_RULE,)))
        assert store.members()[1] is Standing.EXCLUDED

    async def test_of_the_own_service_proxy_counts_what_the_lease_says(self, store):
        store.set_service_proxy(ServiceProxy.ILL)
        assert await is_woken(store)
        well = lease_object("n2", rules=(PROXY_RULE,), service_proxy="well")
        store.leases.put(well)
        assert store.members()[1] is Standing.FIRST
        store.leases.put(lease_object("n1", rules=(PROXY_RULE,), service_proxy="ill"))
        assert store.members()[1] is Standing.ILL

    async def test_the_same_state_of_the_service_proxy_lets_the_loop_sleep(self, store):
        store.set_service_proxy(ServiceProxy.WELL)
        await is_woken(store)
        store.set_service_proxy(ServiceProxy.WELL)
        assert not await is_woken(store)


class TestAddresses:
    async def test_are_those_of_the_node_object(self, store):
        assert store.addresses_of("n2") == ()
        store.nodes.put(node_object("n2", "10.0.0.2", "fd00::2"))
        assert set(store.addresses_of("n2")) == {ip_address("10.0.0.2"), ip_address("fd00::2")}

    async def test_are_kept_while_a_node_without_an_object_has_a_lease(self, store):
        store.nodes.put(node_object("n2", "10.0.0.2", "fd00::2"))
        store.leases.put(lease_object("n2"))
        before = store.addresses_of("n2")
        store.nodes.drop(node_object("n2"))
        assert store.addresses_of("n2") == before != ()
        store.leases.drop(lease_object("n2"))
        store.nodes.put(node_object("n3"))
        assert store.addresses_of("n2") == ()

    async def test_are_kept_while_only_a_vip_is_listed(self, store):
        said = tuple(("n2", vip) for vip in (VIP4, VIP6))
        store.leases.put(lease_object("n2", mistaken=said))
        store.nodes.put(node_object("n2", "10.0.0.2", "fd00::2"))
        before = store.addresses_of("n2")
        await is_woken(store)
        for addresses in (("fd00::2", VIP4), (VIP4, VIP6)):
            store.nodes.put(node_object("n2", *map(str, addresses)))
            assert store.known_addresses <= {ip_address("fd00::2")}
        assert store.addresses_of("n2") == (ip_address("fd00::2"),) != before


async def test_other_nodes_are_known_by_their_macs(store):
    mac = b"\2\0\0\0\0\1"
    store.leases.put(lease_object("n2", macs=(mac,)))
    before = store.macs
    assert before == {mac: "n2"}
    store.leases.put(lease_object("n3"))
    assert store.macs is before


class TestDuplicates:
    @pytest.mark.parametrize("node", ["n1", "n2"], ids=["own", "other"])
    async def test_are_what_a_lease_lists_also_after_its_end(self, store, node):
        store.leases.put(lease_object(node, version="1", duplicates=()))
        assert store.duplicates == set()
        store.leases.put(lease_object(node, version="2", duplicates=(VIP6,)))
        assert store.duplicates == {VIP6}
        await asyncio.sleep(60)
        store.leases.put(lease_object("n9"))
        assert store.duplicates == {VIP6}

    async def test_of_a_lease_are_in_its_own_subnets(self, store):
        store.leases.put(lease_object("n2", subnets=(NET4,), duplicates=(VIP4, VIP6)))
        assert store.duplicates == {VIP4}


class TestMistakenAddresses:
    async def test_a_node_that_is_gone_is_remembered_and_spoken_of(self, store):
        said = (("n2", VIP4),)
        store.nodes.put(node_object("n2", "10.0.0.2", str(VIP4)))
        assert store.known_addresses == {ip_address("10.0.0.2"), VIP4}
        store.leases.put(lease_object("n2", mistaken=said))
        assert store.say_mistaken(frozenset()) == ()
        store.leases.drop(lease_object("n2"))
        assert store.known_addresses == {ip_address("10.0.0.2")}
        assert store.say_mistaken(frozenset()) == said
        store.leases.put(lease_object("n2"))
        assert store.known_addresses == {ip_address("10.0.0.2"), VIP4}

    async def test_the_own_lease_speaks_until_its_agent_does(self, store):
        store.nodes.put(node_object("n1", str(VIP4), str(VIP6)))
        store.leases.replace([lease_object("n1", mistaken=(("n1", VIP4),))], asked_at=1.0)
        assert store.known_addresses == {VIP6}
        assert store.say_mistaken(frozenset({VIP6})) == (("n1", VIP6),)
        assert store.known_addresses == {VIP4}

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The loop: which Services it looks at, what it sends, and how it continues after each failure."""

from __future__ import annotations

import asyncio
import contextlib
from ipaddress import ip_address, ip_network
from itertools import pairwise

import pytest

from purelb.core.allocation.duplicates import NEW_FOR
from purelb.core.model import ServiceKey
from purelb_agent.allocator.requests import MOST_AT_ONCE
from purelb_agent.ipam.port import IpamError
from purelb_agent.kube.client import ApiError
from tests.support.agent.allocator import FAMILIES as ALL_POOLS
from tests.support.agent.allocator import AllocatorWorld, external_group, local_group
from tests.support.agent.cancellation import cancel_at_each_await
from tests.support.agent.kubernetes_objects import lease_object, node_object

FAMILIES = pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
FIRST = {4: "10.0.0.1", 6: "fd00::1"}
SECOND = {4: "10.0.0.2", 6: "fd00::2"}
KEY = ServiceKey("default", "web")


class TestStart:
    async def test_nothing_is_written_before_everything_is_listed(self):
        world = AllocatorWorld()
        world.service("web")
        task = asyncio.create_task(world.controller.run())
        for list_one in (
            lambda: world.controller.services.replace(list(world.bodies.values()), asked_at=0.0),
            lambda: world.controller.leases.replace([], asked_at=0.0),
            lambda: world.controller.nodes.replace([], asked_at=0.0),
        ):
            list_one()
            await world.settle()
            assert world.api.requests == []
            assert world.sample("purelb_k8s_client_config_loaded_bool") == 0
        world.pools.replace([local_group()], asked_at=0.0)
        await world.settle()
        assert world.addresses("web") == [FIRST[4]]
        assert world.sample("purelb_k8s_client_config_loaded_bool") == 1
        task.cancel()
        await asyncio.wait({task})

    async def test_an_empty_cluster_is_ready(self):
        async with AllocatorWorld().running() as world:
            assert world.controller.is_ready

    @FAMILIES
    async def test_addresses_that_services_have_are_taken(self, version):
        world = AllocatorWorld()
        marks = {"purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "default"}
        body = world.service("old", version=version, annotations=marks)
        body["status"] = {"loadBalancer": {"ingress": [{"ip": FIRST[version]}]}}
        world.service("web", version=version)
        async with world.running(local_group(version=version)):
            assert world.addresses("web") == [SECOND[version]]

    @FAMILIES
    async def test_addresses_of_nodes_are_not_allocated(self, version):
        world = AllocatorWorld()
        world.nodes.append(node_object("n1", FIRST[version]))
        world.service("web", version=version)
        async with world.running(local_group(version=version)):
            assert world.addresses("web") == [SECOND[version]]

    @FAMILIES
    async def test_a_refused_service_gets_what_a_node_had(self, version):
        world = AllocatorWorld()
        node = node_object("n1", FIRST[version])
        world.nodes.append(node)
        wish = {"purelb.io/addresses": FIRST[version]}
        world.service("web", version=version, annotations=wish)
        async with world.running(local_group(version=version)):
            assert world.addresses("web") == []
            assert world.events.reasons == ["AllocationFailed"]
            world.controller.nodes.put(node_object("n1", "192.0.2.1"))
            await world.settle()
            assert world.addresses("web") == [FIRST[version]]
            # A heartbeat is no news.
            sent = len(world.api.requests)
            world.controller.nodes.put(node_object("n1", "192.0.2.1"))
            await world.settle()
            assert len(world.api.requests) == sent

    async def test_cancellation_at_each_await_leaves_no_request_under_way(self):
        worlds = []

        async def allocate():
            world = AllocatorWorld()
            worlds.append(world)
            world.service("web")
            world.pools.replace([local_group()], asked_at=0.0)
            world.controller.leases.replace([], asked_at=0.0)
            world.controller.nodes.replace([], asked_at=0.0)
            world.controller.services.replace(list(world.bodies.values()), asked_at=0.0)
            async with asyncio.timeout(1):
                await world.controller.run()

        with contextlib.suppress(TimeoutError):
            async for interruption in cancel_at_each_await(allocate):
                await worlds[-1].settle()
                assert worlds[-1].api.under_way == 0, interruption
        assert [len(world.writes("web")) for world in worlds] == [1, 1, 1]


class TestAssignment:
    @FAMILIES
    async def test_a_new_service_gets_an_address(self, version):
        async with AllocatorWorld().running(local_group(version=version)) as world:
            world.add_service("web", version=version)
            await world.settle()
            assert world.addresses("web") == [FIRST[version]]
            assert world.events.reasons == ["AddressAssigned"]
            assert len(world.writes("web")) == 1
            labels = {"service": "default/web", "ip": FIRST[version]}
            more = {"pool": "default", "pool_type": "local"}
            assert world.sample("purelb_allocator_assigned", **labels, **more) == 1

    async def test_annotations_and_addresses_are_one_write(self):
        async with AllocatorWorld().running(local_group()) as world:
            world.add_service("web")
            await world.settle()
            (write,) = world.writes("web")
            annotations = write.body["metadata"]["annotations"]
            assert annotations["purelb.io/allocated-by"] == "PureLB"
            assert write.body["status"]["loadBalancer"]["ingress"] == [{"ip": FIRST[4]}]

    async def test_a_local_policy_is_changed_to_cluster_first(self):
        async with AllocatorWorld().running(local_group()) as world:
            world.add_service("web", externalTrafficPolicy="Local")
            await world.settle()
            spec, status = world.writes("web")
            assert spec.body["spec"] == {"externalTrafficPolicy": "Cluster"}
            assert status.path.endswith("/status")
            assert world.events.reasons == ["AddressAssigned", "ExternalTrafficPolicyChanged"]

    @FAMILIES
    async def test_a_deleted_services_address_goes_to_the_refused_one(self, version):
        group = local_group(version=version, last=1)
        async with AllocatorWorld().running(group) as world:
            world.add_service("first", version=version)
            await world.settle()
            world.add_service("second", version=version)
            await world.settle()
            assert world.addresses("second") == []
            labels = {"pool": "default", "reason": "exhausted"}
            metric = "purelb_address_pool_allocation_rejected_total"
            assert world.sample(metric, **labels) == 1
            world.delete("first")
            await world.settle()
            assert world.addresses("second") == [FIRST[version]]
            assert world.events.reasons == [
                "AddressAssigned",
                "AllocationFailed",
                "AddressAssigned",
            ]

    async def test_a_service_that_is_no_load_balancer_any_more_is_released(self):
        async with AllocatorWorld().running(local_group()) as world:
            world.add_service("web")
            await world.settle()
            world.change("web", {"spec": {"type": "ClusterIP"}})
            await world.settle()
            assert world.addresses("web") == []
            assert "purelb.io/allocated-by" not in world.bodies["web"]["metadata"]["annotations"]
            world.add_service("other")
            await world.settle()
            assert world.addresses("other") == [FIRST[4]]

    async def test_a_removed_range_is_reported_once_and_the_address_kept(self):
        async with AllocatorWorld().running(local_group()) as world:
            world.add_service("web")
            await world.settle()
            announcing = {"purelb.io/announcing-IPv4": f"n1,eth0,{FIRST[4]}"}
            world.change("web", {"metadata": {"annotations": announcing}})
            world.pools.put(local_group(first=5))
            await world.settle()
            world.change("web", {"metadata": {"labels": {"a": "b"}}})
            world.change("web", {"spec": {"ports": [{"port": 80}]}})
            await world.settle()
            assert world.addresses("web") == [FIRST[4]]
            assert world.events.reasons == ["AddressAssigned", "AddressOutsidePool"]

    @FAMILIES
    async def test_a_range_that_is_removed_as_it_gives_an_address_gives_another_one(self, version):
        async with AllocatorWorld().running(local_group(version=version)) as world:
            world.add_service("web", version=version)
            await world.settle()
            world.pools.put(local_group(version=version, first=5))
            await world.settle()
            assert world.addresses("web") == [str(ip_address(FIRST[version]) + 4)]
            assert world.events.reasons == ["AddressAssigned", "AddressAssigned"]

    async def test_a_range_that_is_removed_after_a_minute_takes_nothing(self):
        async with AllocatorWorld().running(local_group()) as world:
            world.add_service("web")
            await world.settle()
            await asyncio.sleep(NEW_FOR + 1)
            world.pools.put(local_group(first=5))
            await world.settle()
            assert world.addresses("web") == [FIRST[4]]

    @FAMILIES
    @pytest.mark.parametrize("entry", ["n1,eth0,{}", "n1,eth0"])
    async def test_a_range_that_is_removed_takes_nothing_that_is_announced(self, version, entry):
        async with AllocatorWorld().running(local_group(version=version)) as world:
            world.add_service("web", version=version)
            await world.settle()
            text = entry.format(FIRST[version])
            announcing = {f"purelb.io/announcing-IPv{version}": text}
            world.change("web", {"metadata": {"annotations": announcing}})
            world.pools.put(local_group(version=version, first=5))
            await world.settle()
            assert world.addresses("web") == [FIRST[version]]

    @FAMILIES
    async def test_an_address_that_another_group_has_by_now_is_kept(self, version):
        async with AllocatorWorld().running(local_group(version=version)) as world:
            world.add_service("web", version=version)
            await world.settle()
            world.pools.put(local_group(version=version, first=5))
            world.pools.put(local_group("other", version=version, last=4))
            await world.settle()
            assert world.addresses("web") == [FIRST[version]]

    async def test_a_new_group_serves_the_refused(self):
        async with AllocatorWorld().running() as world:
            world.add_service("web")
            await world.settle()
            assert world.events.reasons == ["AllocationFailed"]
            world.pools.put(local_group())
            await world.settle()
            assert world.addresses("web") == [FIRST[4]]

    async def test_the_same_refusal_is_reported_once(self):
        async with AllocatorWorld().running() as world:
            world.add_service("web")
            await world.settle()
            world.change("web", {"spec": {"ports": [{"port": 80}]}})
            await world.settle()
            assert world.events.reasons == ["AllocationFailed"]


@FAMILIES
class TestDuplicates:
    """Addresses that a node lists in its Lease as another host's."""

    def listing(self, world, *texts, lease_version="2"):
        """A node's Lease with these addresses."""
        nets = tuple(ip_network(subnet) for _field, _pool, subnet in ALL_POOLS.values())
        found = tuple(map(ip_address, texts))
        return lease_object("n1", version=lease_version, subnets=nets, duplicates=found)

    async def test_a_new_service_gets_another_one_and_the_group_is_told_once(self, version):
        async with AllocatorWorld().running(local_group(version=version)) as world:
            world.add_service("web", version=version)
            await world.settle()
            world.controller.leases.put(self.listing(world, FIRST[version]))
            await world.settle()
            assert world.addresses("web") == [SECOND[version]]
            (event,) = (e for e in world.events.recorded if e[0] == "AddressSetAside")
            assert event[1] == "default"
            assert event[2].startswith(f"{FIRST[version]} is allocated only to a Service")
            sent = len(world.api.requests)
            world.controller.leases.put(self.listing(world, FIRST[version], lease_version="3"))
            await world.settle()
            assert len(world.api.requests) == sent
            assert world.events.reasons.count("AddressSetAside") == 1

    async def test_each_further_one_that_another_host_has_is_left_too(self, version):
        async with AllocatorWorld().running(local_group(version=version)) as world:
            world.add_service("web", version=version)
            await world.settle()
            world.controller.leases.put(self.listing(world, FIRST[version]))
            await world.settle()
            both = (FIRST[version], SECOND[version])
            world.controller.leases.put(self.listing(world, *both, lease_version="3"))
            await world.settle()
            assert world.addresses("web") == [str(ip_address(SECOND[version]) + 1)]

    async def test_a_service_that_has_had_its_address_for_a_minute_keeps_it(self, version):
        async with AllocatorWorld().running(local_group(version=version)) as world:
            world.add_service("web", version=version)
            await world.settle()
            await asyncio.sleep(NEW_FOR + 1)
            world.controller.leases.put(self.listing(world, FIRST[version]))
            world.add_service("other", version=version)
            await world.settle()
            assert world.addresses("web") == [FIRST[version]]
            assert world.addresses("other") == [SECOND[version]]

    async def test_a_service_that_asks_for_it_keeps_it(self, version):
        async with AllocatorWorld().running(local_group(version=version)) as world:
            wish = {"purelb.io/addresses": FIRST[version]}
            world.add_service("web", version=version, annotations=wish)
            await world.settle()
            world.controller.leases.put(self.listing(world, FIRST[version]))
            await world.settle()
            assert world.addresses("web") == [FIRST[version]]

    async def test_what_is_listed_already_at_the_start_is_not_allocated(self, version):
        world = AllocatorWorld()
        world.service("web", version=version)
        world.leases.append(self.listing(world, FIRST[version]))
        async with world.running(local_group(version=version)):
            assert world.addresses("web") == [SECOND[version]]

    async def test_the_last_free_one_is_given_although_another_host_has_it(self, version):
        async with AllocatorWorld().running(local_group(version=version, last=2)) as world:
            world.controller.leases.put(self.listing(world, FIRST[version], SECOND[version]))
            for name in ("one", "two", "three"):
                world.add_service(name, version=version)
                await world.settle()
            # Of two addresses one is set aside, as long as the other one is free.
            assert world.addresses("one") == [SECOND[version]]
            assert world.addresses("two") == [FIRST[version]]
            assert world.addresses("three") == []

    async def test_hosts_that_answer_for_all_do_not_use_up_the_pool(self, version):
        async with AllocatorWorld().running(local_group(version=version, last=9)) as world:
            found = [str(ip_address(FIRST[version]) + n) for n in range(9)]
            world.controller.leases.put(self.listing(world, *found))
            names = [f"s{n}" for n in range(9)]
            for name in names:
                world.add_service(name, version=version)
                await world.settle()
            assert sorted(a for name in names for a in world.addresses(name)) == sorted(found)
            asides = [e for e in world.events.recorded if e[0] == "AddressSetAside"]
            assert len(asides) == 2


@FAMILIES
class TestDeprecatedSubnets:
    """Subnets that a node's Lease says the network replaces."""

    def listing(self, version, *, lease_version, replaced):
        (_field, _pool, subnet) = ALL_POOLS[version]
        nets = (ip_network(subnet),)
        found = nets if replaced else ()
        return lease_object("n1", version=lease_version, subnets=nets, deprecated=found)

    async def test_the_group_is_told_once_and_no_service_gets_a_new_one(self, version):
        async with AllocatorWorld().running(local_group(version=version)) as world:
            leases = world.controller.leases
            world.add_service("web", version=version)
            await world.settle()
            leases.put(self.listing(version, lease_version="2", replaced=True))
            await world.settle()
            world.add_service("new", version=version)
            await world.settle()
            assert (world.addresses("web"), world.addresses("new")) == ([FIRST[version]], [])
            (event,) = (e for e in world.events.recorded if e[0] == "SubnetDeprecated")
            assert event[1] == "default"
            leases.put(self.listing(version, lease_version="3", replaced=False))
            await world.settle()
            assert world.addresses("new") == [SECOND[version]]
            leases.put(self.listing(version, lease_version="4", replaced=True))
            await world.settle()
            assert world.events.reasons.count("SubnetDeprecated") == 2


class TestDeletedLeases:
    async def test_one_is_forgotten_when_it_was_not_renewed_in_time(self):
        async with AllocatorWorld().running(local_group()) as world:
            table = world.controller.leases
            for name in ("n1", "n2"):
                table.put(lease_object(name, epoch="e.1"))
            table.drop(lease_object("n1", version="2", epoch="e.1"))
            for seconds, known in ((1, {"n1", "n2"}), (10, {"n2"})):
                await asyncio.sleep(seconds)
                world.add_service(f"after-{seconds}")
                await world.settle()
                assert table.counting.leases.keys() == known


class TestWrites:
    async def test_at_most_eight_writes_run_at_once(self):
        async with AllocatorWorld().running(local_group(last=50)) as world:
            names = [f"s{number}" for number in range(20)]
            for name in names:
                path = f"/api/v1/namespaces/default/services/{name}/status"
                world.api.hang("PATCH", path)
            for name in names:
                world.add_service(name)
            await world.settle()
            assert world.api.under_way == MOST_AT_ONCE
            for name in names:
                world.api.resume("PATCH", f"/api/v1/namespaces/default/services/{name}/status")
            await world.settle()
            given = [address for name in names for address in world.addresses(name)]
            assert len(set(given)) == len(names)

    async def test_a_service_is_never_written_twice_at_once(self):
        async with AllocatorWorld().running(local_group()) as world:
            path = "/api/v1/namespaces/default/services/web/status"
            world.api.hang("PATCH", path)
            world.add_service("web")
            await world.settle()
            for number in range(5):
                world.change("web", {"spec": {"ports": [{"port": number}]}})
                await world.settle()
                assert world.api.under_way == 1
            world.api.resume("PATCH", path)
            await world.settle()
            assert world.addresses("web") == [FIRST[4]]

    @pytest.mark.parametrize("status", [0, 403, 500])
    async def test_a_failed_write_is_retried_with_growing_pauses(self, status):
        async with AllocatorWorld().running(local_group()) as world:
            world.add_service("web")
            world.refuse("web", *[ApiError(status, "no")] * 7)
            await asyncio.sleep(200)
            times = [write.at for write in world.writes("web")]
            pauses = [later - before for before, later in pairwise(times)]
            assert pauses == pytest.approx([1, 2, 4, 8, 16, 30, 30])
            assert world.addresses("web") == [FIRST[4]]

    async def test_a_success_resets_the_pauses(self):
        async with AllocatorWorld().running(local_group()) as world:
            world.add_service("web")
            world.refuse("web", *[ApiError(500, "no")] * 3)
            await asyncio.sleep(10)
            assert world.addresses("web") == [FIRST[4]]
            world.refuse("web", ApiError(500, "no"))
            world.change("web", {"spec": {"type": "ClusterIP"}})
            await world.settle()
            assert world.addresses("web") == [FIRST[4]]
            await asyncio.sleep(1.01)
            assert world.addresses("web") == []

    async def test_a_write_without_an_answer_ends_and_is_retried(self):
        async with AllocatorWorld().running(local_group()) as world:
            path = "/api/v1/namespaces/default/services/web/status"
            world.api.hang("PATCH", path)
            world.add_service("web")
            await asyncio.sleep(10.5)
            assert [write.outcome for write in world.writes("web")] == ["refused"]
            world.api.resume("PATCH", path)
            await asyncio.sleep(1)
            assert world.addresses("web") == [FIRST[4]]

    async def test_after_a_conflict_the_newer_service_is_decided_on(self):
        async with AllocatorWorld().running(local_group()) as world:
            world.add_service("web")
            world.change("web", {"spec": {"ports": [{"port": 80}]}}, is_seen=False)
            await asyncio.sleep(60)
            assert [write.outcome for write in world.writes("web")] == ["refused"]
            world.controller.services.put(world.bodies["web"])
            await world.settle()
            assert world.addresses("web") == [FIRST[4]]

    async def test_a_service_that_was_deleted_during_its_write_frees_its_address(self):
        async with AllocatorWorld().running(local_group()) as world:
            body = world.add_service("web")
            world.delete("web", is_seen=False)
            await asyncio.sleep(60)
            assert [write.outcome for write in world.writes("web")] == ["refused"]
            world.controller.services.drop(body)
            world.add_service("other")
            await world.settle()
            assert world.addresses("other") == [FIRST[4]]

    async def test_an_older_version_than_the_last_write_is_ignored(self):
        async with AllocatorWorld().running(local_group()) as world:
            world.watches = False
            body = world.add_service("web")
            await world.settle()
            world.controller.services.put({**body, "spec": {**body["spec"], "ports": []}})
            world.controller.services.put(
                {**body, "spec": {**body["spec"], "ports": [{"port": 80}]}}
            )
            await world.settle()
            assert len(world.writes("web")) == 1

    async def test_finish_waits_for_writes_and_begins_no_other(self):
        async with AllocatorWorld().running(local_group()) as world:
            path = "/api/v1/namespaces/default/services/web/status"
            world.api.hang("PATCH", path)
            world.add_service("web")
            await world.settle()
            finish = asyncio.create_task(world.controller.finish())
            world.add_service("other")
            await world.settle()
            assert not finish.done()
            world.api.resume("PATCH", path)
            await finish
            await world.settle()
            assert world.addresses("web") == [FIRST[4]]
            assert world.writes("other") == []

    async def test_finish_without_writes_ends_at_once(self):
        async with AllocatorWorld().running() as world:
            await world.controller.finish()


class TestOtherSystems:
    @FAMILIES
    async def test_a_service_gets_what_the_system_gives(self, version):
        async with AllocatorWorld(*FIRST.values()).running(external_group()) as world:
            world.add_service("web", version=version)
            await world.settle()
            assert world.addresses("web") == [FIRST[version]]

    async def test_a_deleted_service_is_released_there(self):
        async with AllocatorWorld(FIRST[4]).running(external_group()) as world:
            world.add_service("web")
            await world.settle()
            world.delete("web")
            await world.settle()
            assert ("release", "default", KEY, None) in world.ipam.calls

    async def test_a_service_deleted_before_the_answer_is_released(self):
        async with AllocatorWorld(FIRST[4]).running(external_group()) as world:
            world.ipam.running.clear()
            world.add_service("web")
            await world.settle()
            world.delete("web")
            await world.settle()
            world.ipam.running.set()
            await world.settle()
            assert ("release", "default", KEY, None) in world.ipam.calls

    async def test_an_answer_that_another_service_has_is_refused_and_released(self):
        async with AllocatorWorld(FIRST[4]).running(external_group()) as world:
            world.add_service("first")
            await world.settle()
            world.add_service("web")
            await world.settle()
            assert world.addresses("web") == []
            released = ("release", "default", KEY, world.ipam.addresses[0])
            assert released in world.ipam.calls
            assert world.events.reasons == ["AddressAssigned", "AllocationFailed"]

    @pytest.mark.parametrize(
        ("error", "reason"),
        [
            (IpamError("full", is_exhausted=True), "exhausted"),
            (IpamError("down"), "ipam_failed"),
        ],
        ids=["exhausted", "down"],
    )
    async def test_an_error_is_reported_and_retried_with_growing_pauses(self, error, reason):
        world = AllocatorWorld(FIRST[4])
        async with world.running(external_group()):
            world.ipam.errors["allocate"] = [error] * 3
            world.add_service("web")
            await world.settle()
            (recorded,) = world.events.recorded
            assert recorded[0] == "AllocationFailed"
            assert recorded[2].startswith(reason)
            for pause in (1, 2, 4):
                assert world.addresses("web") == []
                await asyncio.sleep(pause + 0.001)
            assert world.addresses("web") == [FIRST[4]]

    async def test_a_permanent_error_is_retried_after_the_longest_pause(self):
        world = AllocatorWorld(FIRST[4])
        async with world.running(external_group()):
            world.ipam.errors["allocate"] = [IpamError("no such pool", is_permanent=True)]
            world.add_service("web")
            await asyncio.sleep(29)
            assert world.ipam.count("allocate") == 1
            await asyncio.sleep(2)
            assert world.addresses("web") == [FIRST[4]]

    async def test_a_failed_write_after_an_answer_asks_again_and_keeps_the_address(self):
        async with AllocatorWorld(FIRST[4]).running(external_group()) as world:
            world.add_service("web")
            world.refuse("web", ApiError(500, "no"))
            await asyncio.sleep(2)
            assert world.addresses("web") == [FIRST[4]]
            assert world.ipam.count("release") == 0

    async def test_holders_that_are_no_services_any_more_are_released(self):
        world = AllocatorWorld(FIRST[4])
        gone = ServiceKey("default", "gone")
        world.service("web")
        world.ipam.known = frozenset({gone, KEY})
        async with world.running(external_group()):
            await world.settle()
        released = [call[2] for call in world.ipam.calls if call[0] == "release"]
        assert released == [gone]

    async def test_a_service_that_moves_to_a_pool_of_ours_is_released_there(self):
        async with AllocatorWorld(FIRST[4]).running(
            external_group("leased"), local_group("default", first=5)
        ) as world:
            world.add_service("web", annotations={"purelb.io/service-group": "leased"})
            await world.settle()
            assert world.addresses("web") == [FIRST[4]]
            moved = {"purelb.io/service-group": "default", "purelb.io/re-evaluate": "true"}
            world.change("web", {"metadata": {"annotations": moved}})
            await world.settle()
            assert world.addresses("web") == ["10.0.0.5"]
            assert world.ipam.count("release") == 1

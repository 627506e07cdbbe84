# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a tenant gets by writing annotations, and what refusals say."""

from __future__ import annotations

import pytest

from tests.support.agent.allocator import AllocatorWorld, external_group, local_group
from tests.support.agent.logs import Logged

FAMILIES = pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
FIRST = {4: "10.0.0.1", 6: "fd00::1"}
OURS = {
    "purelb.io/allocated-by": "PureLB",
    "purelb.io/allocated-from": "shop",
    "purelb.io/pool-type": "remote",
    "purelb.io/skip-ipv6-dad": "true",
}
KEY = {"purelb.io/allow-shared-ip": "x"}
REJECTED = "purelb_address_pool_allocation_rejected_total"


def annotations(world, name):
    return world.bodies[name]["metadata"]["annotations"]


def shop(version=4, **more):
    """The group of the namespace `shop`, and of no other."""
    fence = {"namespaces": ["shop"], "enforceNamespaces": True}
    return local_group("shop", version=version, first=11, last=19, **fence, **more)


@FAMILIES
class TestForgedAnnotations:
    async def test_they_open_no_fence_and_are_removed(self, version):
        async with AllocatorWorld().running(shop(version)) as world:
            asks = {"purelb.io/service-group": "shop"}
            world.add_service("web", version=version, annotations={**OURS, **asks})
            await world.settle()
            assert world.addresses("web") == []
            assert annotations(world, "web") == asks
            assert len(world.writes("web")) == 1

    async def test_those_of_a_service_with_addresses_are_corrected(self, version):
        async with AllocatorWorld().running(local_group(version=version), shop(version)) as world:
            world.add_service("web", version=version)
            await world.settle()
            right = annotations(world, "web")
            for asks in ({}, {"purelb.io/service-group": "gone"}):
                world.change("web", {"metadata": {"annotations": {**OURS, **asks}}})
                await world.settle()
                assert world.addresses("web") == [FIRST[version]]
                assert annotations(world, "web") == {**right, **asks}
            labels = {"service": "default/web", "ip": FIRST[version]}
            more = {"pool": "default", "pool_type": "local"}
            assert world.sample("purelb_allocator_assigned", **labels, **more) == 1

    async def test_a_restart_trusts_the_pool_and_not_them(self, version):
        world = AllocatorWorld()
        body = world.service("web", version=version, annotations=OURS)
        body["status"] = {"loadBalancer": {"ingress": [{"ip": FIRST[version]}]}}
        async with world.running(local_group(version=version), shop(version)):
            assert annotations(world, "web")["purelb.io/allocated-from"] == "default"
            assert annotations(world, "web")["purelb.io/pool-type"] == "local"
            assert world.addresses("web") == [FIRST[version]]


async def test_another_load_balancers_addresses_stay_as_they_are():
    async with AllocatorWorld().running(shop()) as world:
        asks = {"purelb.io/service-group": "shop", "purelb.io/pool-type": "remote"}
        body = world.service("web", annotations=asks)
        body["status"] = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}
        world.controller.services.put(body)
        await world.settle()
        assert world.writes("web") == []


async def test_a_service_behind_a_fence_keeps_what_it_has_and_gets_no_more():
    groups = [local_group(), local_group("other", first=21, last=29)]
    async with AllocatorWorld().running(*groups) as world:
        world.add_service("web", namespace="shop")
        await world.settle()
        world.pools.put(shop())
        await world.settle()
        assert world.addresses("web") == [FIRST[4]]
        world.change("web", {"metadata": {"annotations": {"purelb.io/service-group": "other"}}})
        await world.settle()
        assert world.addresses("web") == [FIRST[4]]
        assert "get addresses from ServiceGroup shop only" in world.events.recorded[-1][2]


class TestRefusals:
    @FAMILIES
    async def test_holder_is_told_to_the_log_only(self, version, caplog):
        logged = Logged(caplog)
        async with AllocatorWorld().running(local_group(version=version)) as world:
            world.add_service("secret", version=version, namespace="shop", annotations=KEY)
            await world.settle()
            asks = {"purelb.io/addresses": FIRST[version]}
            world.add_service("web", version=version, annotations=asks)
            await world.settle()
        (_reason, _name, message) = world.events.recorded[-1]
        assert "already in use by another Service" in message
        assert "secret" not in message
        assert logged.fields("refused")[-1]["detail"] == "Service shop/secret has it"

    async def test_namespaces_of_a_group_are_told_to_the_log_only(self, caplog):
        logged = Logged(caplog)
        fence = {"namespaces": ["secret"], "enforceNamespaces": True}
        async with AllocatorWorld().running(local_group("blue", **fence)) as world:
            world.add_service("web", annotations={"purelb.io/service-group": "blue"})
            await world.settle()
        (_reason, _name, message) = world.events.recorded[-1]
        assert message.startswith("namespace_denied: ServiceGroup blue is reserved")
        assert "secret" not in message
        (line,) = logged.fields("refused")
        assert line["detail"] == "add default to its spec.namespaces, which are secret"

    async def test_names_of_groups_that_do_not_exist_make_no_series(self):
        async with AllocatorWorld().running(local_group()) as world:
            for number in range(3):
                group = {"purelb.io/service-group": f"made-up-{number}" * 1000}
                world.add_service(f"web-{number}", annotations=group)
            await world.settle()
            assert world.sample(REJECTED, pool="", reason="unknown_pool") == 3
            found = {s.labels.get("pool") for m in world.registry.collect() for s in m.samples}
            assert found <= {None, "", "default"}


async def test_several_groups_without_a_default_are_told_with_the_address():
    shared = {"namespaces": ["default"]}
    groups = [local_group(), local_group("a", first=11, last=12, **shared)]
    async with AllocatorWorld().running(
        *groups, local_group("b", first=21, last=22, **shared)
    ) as world:
        world.add_service("web")
        await world.settle()
        assert world.addresses("web") == [FIRST[4]]
        assert world.events.reasons == ["AddressAssigned", "AmbiguousNamespaceDefault"]
        assert "a, b all serve this namespace" in world.events.recorded[-1][2]
        assert "so ServiceGroup default was taken" in world.events.recorded[-1][2]


async def test_the_same_is_told_for_addresses_of_another_system():
    shared = {"namespaces": ["default"]}
    groups = [
        local_group("a", first=11, last=12, **shared),
        local_group("b", first=21, last=22, **shared),
    ]
    async with AllocatorWorld(FIRST[4]).running(external_group(), *groups) as world:
        world.add_service("web")
        await world.settle()
        assert world.addresses("web") == [FIRST[4]]
        assert world.events.reasons == ["AddressAssigned", "AmbiguousNamespaceDefault"]


class TestSharing:
    @FAMILIES
    @pytest.mark.parametrize("sharing", ["namespace", "cluster"])
    async def test_crosses_namespaces_only_where_the_group_says_so(self, version, sharing):
        group = local_group(version=version, sharing=sharing)
        async with AllocatorWorld().running(group) as world:
            for number, namespace in enumerate(("shop", "office", "shop")):
                ports = [{"port": 80 + number}]
                more = {"version": version, "namespace": namespace, "ports": ports}
                world.add_service(f"web-{number}", annotations=KEY, **more)
                await world.settle()
            first, second, third = (world.addresses(f"web-{n}") for n in range(3))
            assert first == third
            assert (second == first) == (sharing == "cluster")

    @FAMILIES
    async def test_a_port_that_comes_later_moves_no_service_that_was_first(self, version):
        async with AllocatorWorld().running(local_group(version=version)) as world:
            for name, port in (("first", 80), ("second", 81)):
                ports = [{"port": port}]
                world.add_service(name, version=version, annotations=KEY, ports=ports)
                await world.settle()
            world.change("second", {"spec": {"ports": [{"port": 80}]}})
            await world.settle()
            assert world.addresses("first") == [FIRST[version]]
            assert world.addresses("second") == []
            assert world.events.recorded[-1][2].startswith("port_conflict: ")
            world.change("second", {"spec": {"ports": [{"port": 82}]}})
            await world.settle()
            assert world.addresses("second") == [FIRST[version]]

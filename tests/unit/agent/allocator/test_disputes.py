# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Another controller, or a tool, that undoes what the allocator writes to a Service."""

from __future__ import annotations

import asyncio
import json

import pytest

from simulation.api.objects import merged
from simulation.api.server import Watch
from tests.support.agent.allocator import SERVICES, AllocatorWorld, local_group

FIRST = {4: "10.0.0.1", 6: "fd00::1"}
SECOND = {4: "10.0.0.2", 6: "fd00::2"}
NODE = {4: "192.0.2.1", 6: "2001:db8::1"}
FAMILIES = pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
LOCAL = {"spec": {"externalTrafficPolicy": "Local"}}


def overwritten(version, manager="k3s"):
    """What another controller of LoadBalancer Services writes, and the API server's note of it."""
    note = {
        "manager": manager,
        "subresource": "status",
        "fieldsV1": {"f:status": {"f:loadBalancer": {"f:ingress": {}}}},
    }
    return {
        "metadata": {"managedFields": [note]},
        "status": {"loadBalancer": {"ingress": [{"ip": NODE[version]}]}},
    }


class Undoing:
    """A controller that watches a Service, and undoes at once what the allocator writes to it."""

    def __init__(self, world, name, patch):
        self._world, self._name, self._patch = world, name, patch
        self._is_at_work = True
        world.server.follow(Watch(SERVICES, "", lambda _stored: True, self._hear))
        world.change(name, patch)

    def _hear(self, line):
        body = json.loads(line)["object"]
        is_undone = merged(body, self._patch)["status"] == body.get("status")
        is_undone = is_undone and merged(body, self._patch)["spec"] == body["spec"]
        if body["metadata"]["name"] == self._name and not is_undone and self._is_at_work:
            asyncio.get_running_loop().call_later(0.01, self._undo)

    def _undo(self):
        if self._is_at_work:
            self._world.change(self._name, self._patch)

    def stop(self):
        self._is_at_work = False


@FAMILIES
async def test_one_overwritten_status_is_corrected_at_once(version):
    async with AllocatorWorld().running(local_group(version=version)) as world:
        world.add_service("web", version=version)
        await world.settle()
        world.change("web", overwritten(version))
        await world.settle()
        assert world.addresses("web") == [FIRST[version]]
        assert "ServiceDisputed" not in world.events.reasons


@FAMILIES
async def test_a_second_controller_is_answered_less_and_less_often_and_named_once(version):
    async with AllocatorWorld().running(local_group(version=version)) as world:
        world.add_service("web", version=version)
        await world.settle()
        other = Undoing(world, "web", overwritten(version))
        await asyncio.sleep(600)
        # At 0, 0, 1, 3, 7, 15, 31, 63, 127, 255 and 511 s.
        assert 10 <= len(world.writes("web")) <= 12
        assert all(
            [entry["ip"] for entry in write.body["status"]["loadBalancer"]["ingress"]]
            == [FIRST[version]]
            for write in world.writes("web")
        )
        (told,) = [event for event in world.events.recorded if event[0] == "ServiceDisputed"]
        assert told[2].startswith(f"k3s writes {NODE[version]} into its status")
        assert world.events.reasons.count("AddressAssigned") == 2
        # Others are served as before.
        world.add_service("new", version=version)
        await world.settle()
        assert world.addresses("new") == [SECOND[version]]
        other.stop()


async def test_a_tool_that_sets_the_policy_again_is_answered_less_and_less_often():
    async with AllocatorWorld().running(local_group()) as world:
        world.add_service("web", externalTrafficPolicy="Local")
        await world.settle()
        other = Undoing(world, "web", LOCAL)
        await asyncio.sleep(60)
        # Two each: the policy, then the status.
        assert 12 <= len(world.writes("web")) <= 16
        (told,) = [event for event in world.events.recorded if event[0] == "ServiceDisputed"]
        assert "externalTrafficPolicy to Local again" in told[2]
        other.stop()


async def test_the_owner_is_not_kept_waiting_by_a_dispute():
    async with AllocatorWorld().running(local_group()) as world:
        world.add_service("web")
        await world.settle()
        other = Undoing(world, "web", overwritten(4))
        await asyncio.sleep(100)
        other.stop()
        wish = {"purelb.io/addresses": SECOND[4]}
        world.change("web", {"metadata": {"annotations": wish}})
        await world.settle()
        assert world.addresses("web") == [SECOND[4]]


@FAMILIES
async def test_a_replaced_service_keeps_its_address_and_gets_its_annotations_back(version):
    groups = [local_group(version=version)]
    async with AllocatorWorld().running(*groups) as world:
        world.add_service("web", version=version)
        await world.settle()
        world.pools.put(
            local_group("later", version=version, first=11, last=19, namespaces=["default"])
        )
        bare = dict.fromkeys(world.bodies["web"]["metadata"]["annotations"])
        world.change("web", {"metadata": {"annotations": bare}})
        await world.settle()
        assert world.addresses("web") == [FIRST[version]]
        marks = world.bodies["web"]["metadata"]["annotations"]
        assert marks["purelb.io/allocated-from"] == "default"


@FAMILIES
async def test_one_that_is_being_deleted_gives_its_address_back(version):
    async with AllocatorWorld().running(local_group(version=version)) as world:
        world.add_service("web", version=version)
        await world.settle()
        deleted = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["example.com/a"]}
        world.change("web", {"metadata": deleted})
        await world.settle()
        assert world.addresses("web") == []
        assert world.events.recorded[-1][0] == "AddressReleased"
        assert FIRST[version] in world.events.recorded[-1][2]
        world.add_service("other", version=version)
        await world.settle()
        assert world.addresses("other") == [FIRST[version]]


async def test_what_another_program_wrote_stays_when_the_service_is_given_to_it():
    async with AllocatorWorld().running(local_group()) as world:
        world.add_service("web")
        await world.settle()
        theirs = [{"ip": NODE[4], "ipMode": "Proxy"}]
        ours = [{"ip": FIRST[4]}]
        world.change(
            "web",
            {
                "spec": {"loadBalancerClass": "example.com/other"},
                "status": {"loadBalancer": {"ingress": [*ours, *theirs]}},
            },
        )
        await world.settle()
        assert world.bodies["web"]["status"]["loadBalancer"]["ingress"] == theirs
        assert "purelb.io/allocated-by" not in world.bodies["web"]["metadata"]["annotations"]
        world.add_service("new")
        await world.settle()
        assert world.addresses("new") == [FIRST[4]]

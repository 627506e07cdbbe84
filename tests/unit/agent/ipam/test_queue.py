# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Groups of other systems: asked one thing after the other, and paid back what is theirs."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from ipaddress import ip_address

import pytest

from purelb.core.allocation.ipam import IpamRequest, Leased, Stats
from purelb.core.model import ExternalSource, ServiceGroup, ServiceKey
from purelb_agent.ipam import queue as module
from purelb_agent.ipam.port import IpamError
from purelb_agent.ipam.queue import IpamQueue

KEY = ServiceKey("default", "web")
ADDRESSES = [pytest.param("10.0.0.1", id="v4"), pytest.param("fd00::1", id="v6")]


def group(name):
    return ServiceGroup(name, source=ExternalSource("acme", f"/{name}"))


class System:
    """Gives everybody the same address; fails and hangs as told; remembers what it was asked."""

    def __init__(self, address):
        self.address = ip_address(address)
        self.asked = []
        self.failures = Counter()
        self.hanging = set()
        self.known = frozenset()

    async def _note(self, what, group):
        self.asked.append((what, group.name))
        if group.name in self.hanging:
            await asyncio.Event().wait()
        if self.failures[what]:
            self.failures[what] -= 1
            raise IpamError("down")

    async def allocate(self, group, _request):
        await self._note("allocate", group)
        return (Leased(self.address),)

    async def release(self, group, _service, _address):
        await self._note("release", group)

    async def stats(self, group):
        await self._note("stats", group)
        return Stats({4: 1, 6: 1}, {4: 2, 6: None})

    async def holders(self, _group):
        return self.known


@asynccontextmanager
async def running(system, *names):
    ipam_queue = IpamQueue(system)
    ipam_queue.follow(group(name) for name in names)
    task = asyncio.create_task(ipam_queue.run())
    try:
        yield ipam_queue
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def until(condition):
    async with asyncio.timeout(1):
        while not condition():  # noqa: ASYNC110 - what is awaited is another's state
            await asyncio.sleep(0.001)


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch):
    monkeypatch.setattr(module, "_PAUSE", 0.01)


@pytest.mark.parametrize("address", ADDRESSES)
async def test_an_answer_is_the_addresses(address):
    async with running(System(address), "a") as ipam_queue:
        assert await ipam_queue.allocate(group("a"), IpamRequest(KEY)) == (ip_address(address),)


@pytest.mark.parametrize("address", ADDRESSES)
async def test_what_could_not_be_given_back_is_tried_again(address):
    system = System(address)
    async with running(system, "a") as ipam_queue:
        await until(lambda: ipam_queue.stats("a")[0] is not None)
        system.failures["release"] = 2
        ipam_queue.release("a", KEY, ip_address(address))
        await until(lambda: system.asked.count(("release", "a")) == 3)
        await asyncio.sleep(0.05)
    assert system.asked.count(("release", "a")) == 3


@pytest.mark.parametrize("address", ADDRESSES)
@pytest.mark.parametrize("is_one", [True, False], ids=["one-address", "all"])
async def test_what_the_service_gets_again_is_not_given_back(address, is_one):
    system = System(address)
    async with running(system, "a") as ipam_queue:
        await until(lambda: ipam_queue.stats("a")[0] is not None)
        system.failures["release"] = 1
        ipam_queue.release("a", KEY, ip_address(address) if is_one else None)
        await until(lambda: ("release", "a") in system.asked)
        await ipam_queue.allocate(group("a"), IpamRequest(KEY))
        await asyncio.sleep(0.05)
    assert system.asked.count(("release", "a")) == 1


async def test_a_system_that_hangs_keeps_nobody_else_waiting():
    system = System("10.0.0.1")
    system.hanging = {"a"}
    async with running(system, "a", "b") as ipam_queue:
        stuck = asyncio.create_task(ipam_queue.allocate(group("a"), IpamRequest(KEY)))
        async with asyncio.timeout(1):
            await ipam_queue.allocate(group("b"), IpamRequest(KEY))
        assert not stuck.done()
        stuck.cancel()


async def test_an_error_reaches_who_asked():
    system = System("10.0.0.1")
    async with running(system, "a") as ipam_queue:
        await until(lambda: ipam_queue.stats("a")[0] is not None)
        system.failures["allocate"] = 1
        with pytest.raises(IpamError, match="down"):
            await ipam_queue.allocate(group("a"), IpamRequest(KEY))


async def test_a_pool_that_cannot_be_looked_at_says_why():
    system = System("10.0.0.1")
    system.failures["stats"] = 1
    async with running(system, "a") as ipam_queue:
        await until(lambda: ipam_queue.stats("a")[1] == "down")
        await ipam_queue.allocate(group("a"), IpamRequest(KEY))
        await until(lambda: ipam_queue.stats("a")[1] == "")


async def test_who_has_addresses_there_is_told_once():
    system, told = System("10.0.0.1"), []
    system.known = frozenset({KEY})
    async with running(system, "a") as ipam_queue:
        ipam_queue.on_holders = lambda name, keys: told.append((name, keys))
        await until(lambda: told)
        await ipam_queue.allocate(group("a"), IpamRequest(KEY))
        await until(lambda: system.asked.count(("stats", "a")) == 2)
    assert told == [("a", frozenset({KEY}))]


async def test_a_group_that_is_gone_gets_back_what_is_owed_and_is_not_looked_at_any_more():
    system = System("10.0.0.1")
    async with running(system, "a") as ipam_queue:
        await until(lambda: ipam_queue.stats("a")[0] is not None)
        ipam_queue.follow([])
        ipam_queue.release("a", KEY)
        await until(lambda: ("release", "a") in system.asked)
        await asyncio.sleep(0.01)
    assert system.asked.count(("stats", "a")) == 1


def test_nothing_is_known_of_a_group_that_is_not_followed():
    ipam_queue = IpamQueue(System("10.0.0.1"))
    ipam_queue.release("a", KEY)
    assert ipam_queue.stats("a") == (None, "")

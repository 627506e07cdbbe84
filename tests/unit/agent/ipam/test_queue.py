# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Groups of other systems: one call after the other, and releases retried until they succeed."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from contextlib import asynccontextmanager
from ipaddress import ip_address
from itertools import pairwise

import pytest

from purelb.core.allocation.ipam import IpamRequest, Leased, Stats
from purelb.core.model import ExternalSource, ServiceGroup, ServiceKey
from purelb_agent.ipam import queue as module
from purelb_agent.ipam.port import IpamError
from purelb_agent.ipam.queue import IpamQueue
from tests.support.agent.cancellation import cancel_at_each_await

KEY = ServiceKey("default", "web")
ADDRESSES = [pytest.param("10.0.0.1", id="v4"), pytest.param("fd00::1", id="v6")]


def group(name):
    return ServiceGroup(name, source=ExternalSource("acme", f"/{name}"))


class System:
    """Gives every Service the same address; fails and hangs as set; records its calls."""

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
async def test_allocate_returns_the_addresses(address):
    async with running(System(address), "a") as ipam_queue:
        assert await ipam_queue.allocate(group("a"), IpamRequest(KEY)) == (ip_address(address),)


@pytest.mark.parametrize("address", ADDRESSES)
async def test_failed_release_is_retried(address):
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
async def test_address_allocated_again_is_not_released(address, is_one):
    system = System(address)
    async with running(system, "a") as ipam_queue:
        await until(lambda: ipam_queue.stats("a")[0] is not None)
        system.failures["release"] = 1
        ipam_queue.release("a", KEY, ip_address(address) if is_one else None)
        await until(lambda: ("release", "a") in system.asked)
        await ipam_queue.allocate(group("a"), IpamRequest(KEY))
        await asyncio.sleep(0.05)
    assert system.asked.count(("release", "a")) == 1


async def test_hanging_system_does_not_delay_another_group():
    system = System("10.0.0.1")
    system.hanging = {"a"}
    async with running(system, "a", "b") as ipam_queue:
        stuck = asyncio.create_task(ipam_queue.allocate(group("a"), IpamRequest(KEY)))
        async with asyncio.timeout(1):
            await ipam_queue.allocate(group("b"), IpamRequest(KEY))
        assert not stuck.done()
        stuck.cancel()


async def test_allocate_raises_the_error_of_the_system():
    system = System("10.0.0.1")
    async with running(system, "a") as ipam_queue:
        await until(lambda: ipam_queue.stats("a")[0] is not None)
        system.failures["allocate"] = 1
        with pytest.raises(IpamError, match="down"):
            await ipam_queue.allocate(group("a"), IpamRequest(KEY))


async def test_failed_stats_are_an_error_until_they_succeed():
    system = System("10.0.0.1")
    system.failures["stats"] = 1
    async with running(system, "a") as ipam_queue:
        await until(lambda: ipam_queue.stats("a")[1] == "down")
        await ipam_queue.allocate(group("a"), IpamRequest(KEY))
        await until(lambda: ipam_queue.stats("a")[1] == "")


async def test_holders_are_listed_once():
    system, told = System("10.0.0.1"), []
    system.known = frozenset({KEY})
    async with running(system, "a") as ipam_queue:
        ipam_queue.on_holders = lambda name, keys: told.append((name, keys))
        await until(lambda: told)
        await ipam_queue.allocate(group("a"), IpamRequest(KEY))
        await until(lambda: system.asked.count(("stats", "a")) == 2)
    assert told == [("a", frozenset({KEY}))]


async def test_deleted_group_gets_its_releases_and_no_more_looks():
    system = System("10.0.0.1")
    async with running(system, "a") as ipam_queue:
        await until(lambda: ipam_queue.stats("a")[0] is not None)
        ipam_queue.follow([])
        ipam_queue.release("a", KEY)
        await until(lambda: ("release", "a") in system.asked)
        await asyncio.sleep(0.01)
    assert system.asked.count(("stats", "a")) == 1


def test_unknown_group_has_no_stats():
    ipam_queue = IpamQueue(System("10.0.0.1"))
    ipam_queue.release("a", KEY)
    assert ipam_queue.stats("a") == (None, "")


class TestTimes:
    """In virtual time, with the pauses of the program."""

    @pytest.fixture(autouse=True)
    def _short_pauses(self):
        """Replace the short pauses of the module."""

    @staticmethod
    def moments(system):
        """Record when each call comes."""
        note, times = system._note, []  # noqa: SLF001 - the double of this module

        async def noted(what, group):
            times.append((what, asyncio.get_running_loop().time()))
            await note(what, group)

        system._note = noted  # noqa: SLF001 - the double of this module
        return times

    async def test_pools_are_looked_at_each_minute(self):
        system = System("10.0.0.1")
        times = self.moments(system)
        async with running(system, "a"):
            await asyncio.sleep(185)
        looks = [moment - times[0][1] for what, moment in times if what == "stats"]
        assert looks == pytest.approx([0, 60, 120, 180])

    async def test_stats_are_read_again_after_each_allocation(self):
        system = System("10.0.0.1")
        async with running(system, "a") as ipam_queue:
            await asyncio.sleep(1)
            await ipam_queue.allocate(group("a"), IpamRequest(KEY))
            await asyncio.sleep(1)
        assert system.asked.count(("stats", "a")) == 2

    async def test_pauses_between_releases_double_up_to_a_minute(self):
        system = System("10.0.0.1")
        times = self.moments(system)
        async with running(system, "a") as ipam_queue:
            await asyncio.sleep(1)
            system.failures["release"] = 8
            ipam_queue.release("a", KEY)
            await asyncio.sleep(400)
        moments = [moment for what, moment in times if what == "release"]
        pauses = [later - before for before, later in pairwise(moments)]
        assert pauses == pytest.approx([1, 2, 4, 8, 16, 32, 60, 60])

    async def test_a_new_release_starts_over_with_the_first_pause(self):
        system = System("10.0.0.1")
        times = self.moments(system)
        async with running(system, "a") as ipam_queue:
            await asyncio.sleep(1)
            system.failures["release"] = 5
            ipam_queue.release("a", KEY)
            await asyncio.sleep(10)
            ipam_queue.release("a", KEY)
            await asyncio.sleep(1.5)
        moments = [moment - times[0][1] for what, moment in times if what == "release"]
        assert moments[-2:] == pytest.approx([11, 12])

    async def test_a_release_during_the_same_release_is_not_repeated(self):
        system = System("10.0.0.1")
        async with running(system, "a") as ipam_queue:
            await asyncio.sleep(1)
            ipam_queue.release("a", KEY)
            ipam_queue.release("a", KEY)
            await asyncio.sleep(100)
        assert system.asked.count(("release", "a")) == 1

    async def test_stats_are_reported_only_when_they_change(self):
        system, news = System("10.0.0.1"), []
        async with running(system, "a") as ipam_queue:
            ipam_queue.on_stats = lambda: news.append(1)
            await asyncio.sleep(150)
            system.failures["stats"] = 1
            await asyncio.sleep(60)
            assert ipam_queue.stats("a")[1] == "down"
            await asyncio.sleep(60)
            assert ipam_queue.stats("a")[1] == ""
        assert len(news) == 3

    @pytest.mark.parametrize("outcome", ["address", "error"])
    async def test_an_answer_that_no_one_waits_for_is_dropped(self, outcome):
        system = System("10.0.0.1")
        async with running(system, "a") as ipam_queue:
            await asyncio.sleep(1)
            if outcome == "error":
                system.failures["allocate"] = 1
            asked = asyncio.create_task(ipam_queue.allocate(group("a"), IpamRequest(KEY)))
            await asyncio.sleep(0)
            asked.cancel()
            await asyncio.wait({asked})
            await asyncio.sleep(1)
            assert await ipam_queue.allocate(group("a"), IpamRequest(KEY))

    async def test_a_group_that_comes_back_is_looked_at_again(self):
        system = System("10.0.0.1")
        async with running(system, "a") as ipam_queue:
            await asyncio.sleep(1)
            ipam_queue.follow([])
            await asyncio.sleep(120)
            ipam_queue.follow([group("a")])
            await asyncio.sleep(61)
        assert system.asked.count(("stats", "a")) == 2

    async def test_cancellation_at_each_await_ends_every_task_of_a_group(self):
        before, runs = asyncio.all_tasks(), []

        async def work():
            runs.append(1)
            system = System("10.0.0.1")
            ipam_queue = IpamQueue(system)
            ipam_queue.follow([group("a"), group("b")])
            ipam_queue.release("a", KEY)
            async with asyncio.timeout(3):
                await ipam_queue.run()

        with contextlib.suppress(TimeoutError):
            async for interruption in cancel_at_each_await(work):
                await asyncio.sleep(0)
                assert asyncio.all_tasks() == before, interruption
        assert len(runs) > 1

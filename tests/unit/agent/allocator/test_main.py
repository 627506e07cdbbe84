# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The program: what a standby does, what a leader starts, and the order of the shutdown."""

from __future__ import annotations

import asyncio

import pytest

from purelb.core.errors import SettingError
from purelb_agent.allocator import main
from purelb_agent.kube.client import ApiError
from purelb_agent.leader.elector import LeadershipLostError
from tests.support.agent.fake_api import FakeApi

LEASES = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases"
LOCK = f"{LEASES}/purelb-allocator"
LISTS = (
    LEASES,
    "/apis/purelb.io/v2/servicegroups",
    "/api/v1/services",
    "/api/v1/nodes",
    "/api/v1/namespaces/default/events",
)


class Cluster(FakeApi):
    """An API server with nothing but the lock; also takes the place of both clients."""

    def __init__(self):
        super().__init__()
        self.lock = self.stored({})
        self.ends = []
        for path in LISTS:
            self.answer("GET", path, {"items": [], "metadata": {"resourceVersion": "1"}})
        self.answer("GET", LEASES, self.list_leases)
        self.answer("GET", LOCK, lambda _request: self.lock)
        self.answer("PATCH", LOCK, self.write_lock)
        self.answer("POST", "/api/v1/namespaces/purelb-system/events", {})

    def stored(self, spec, version=1):
        meta = {"name": "purelb-allocator", "uid": "u", "resourceVersion": str(version)}
        return {"metadata": meta, "spec": spec}

    def list_leases(self, request):
        is_lock = request.params.get("fieldSelector", "") == "metadata.name=purelb-allocator"
        return {"items": [self.lock] if is_lock else [], "metadata": {"resourceVersion": "1"}}

    def write_lock(self, request):
        if not request.body["spec"].get("holderIdentity"):
            self.ends.append("released")
        version = int(self.lock["metadata"]["resourceVersion"]) + 1
        self.lock = self.stored(request.body["spec"], version)
        return self.lock

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def settle(self):
        self.ends.append("settled")


class Server:
    """In place of the HTTP server; keeps what makes the program ready."""

    def make(self, _registry, *, port, is_ready):
        self.port, self.is_ready = port, is_ready
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None


class NoConversion:
    def __init__(self, _metrics):
        self.is_running = False

    async def run(self):
        await asyncio.Event().wait()


@pytest.fixture
def cluster():
    return Cluster()


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def stop():
    return asyncio.Event()


@pytest.fixture
async def program(cluster, server, stop):
    tasks = []
    outside = main.AllocatorOutside(
        kube=lambda: cluster,
        writer=lambda _fence: cluster,
        server=server.make,
        conversion=NoConversion,
    )

    async def start(**settings):
        work = main.run_allocator(main.AllocatorSettings("host", **settings), outside, stop)
        tasks.append(asyncio.create_task(work))
        await asyncio.sleep(1)
        return tasks[-1]

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def watched(cluster):
    return {request.path for request in cluster.sent("WATCH")}


async def test_a_leader_lists_everything_and_is_ready(cluster, server, program):
    await program()
    assert watched(cluster) == set(LISTS)
    assert server.is_ready()
    (event,) = cluster.sent("POST")
    assert event.body["reason"] == "LeaderElected"


async def test_a_standby_watches_the_lock_and_nothing_else(cluster, server, program):
    cluster.lock = cluster.stored({"holderIdentity": "b", "leaseDurationSeconds": 15})
    await program()
    assert watched(cluster) == {LEASES}
    assert server.is_ready()
    await asyncio.sleep(15)
    assert watched(cluster) == set(LISTS)


async def test_without_an_api_server_a_replica_is_not_ready(cluster, server, program):
    cluster.answer("GET", LEASES, ApiError(0, "down"))
    await program()
    assert not server.is_ready()


@pytest.mark.parametrize("draining", [True, False])
async def test_evictions_are_watched_only_if_draining_is_on(cluster, program, draining):
    await program(has_draining=draining)
    events = "/api/v1/namespaces/default/events"
    assert (events in watched(cluster)) == draining
    # In any case: no Service gets an address of a Node.
    assert "/api/v1/nodes" in watched(cluster)


@pytest.mark.parametrize(
    ("conversion", "seconds"),
    [(False, 0), (True, main._CONVERSION_LINGER_SECONDS)],  # noqa: SLF001 - its value
)
async def test_shutdown_settles_writes_then_releases_the_lock(
    cluster, program, stop, conversion, seconds
):
    task = await program(has_conversion=conversion)
    loop = asyncio.get_running_loop()
    stop.set()
    began = loop.time()
    await task
    assert cluster.ends == ["settled", "released"]
    assert loop.time() - began == pytest.approx(seconds)
    assert cluster.under_way == 0


async def test_a_standby_that_is_stopped_leaves_the_lock_alone(cluster, program, stop):
    cluster.lock = cluster.stored({"holderIdentity": "b", "leaseDurationSeconds": 15})
    task = await program()
    stop.set()
    await task
    assert cluster.ends == ["settled"]
    assert cluster.lock["spec"]["holderIdentity"] == "b"


async def test_lost_leadership_ends_the_program(cluster, program):
    task = await program()
    cluster.answer("PATCH", LOCK, ApiError(500, "no"))
    with pytest.raises(LeadershipLostError, match="notRenewed"):
        await task
    assert cluster.under_way == 0


class TestSettings:
    def read(self, **environ):
        return main.AllocatorSettings.read(environ, host="allocator-1", port=7)

    def test_the_defaults(self):
        assert self.read() == main.AllocatorSettings("allocator-1", 7)

    def test_all_that_can_be_set(self):
        found = self.read(
            PURELB_NAMESPACE="lb",
            PURELB_CLAIM_UNCLASSED="off",
            PURELB_DRAINING="off",
            PURELB_EVICTION_LIMIT="2",
            PURELB_CONVERSION="on",
        )
        assert (found.namespace, found.has_draining, found.has_conversion) == ("lb", False, True)
        assert found.eviction_limit.nodes(100) == 2
        assert None not in found.classes

    def test_an_invalid_switch_is_an_error(self):
        with pytest.raises(SettingError, match="PURELB_DRAINING"):
            self.read(PURELB_DRAINING="perhaps")


def test_the_command_line_is_that_of_both_programs(monkeypatch):
    given = []
    monkeypatch.setattr(main, "run", lambda options, work: given.append((options, work)))
    monkeypatch.setattr("sys.argv", ["allocator", "--metrics-port", "9"])
    main.main()
    ((options, work),) = given
    assert (options.metrics_port, work) == (9, main._work)  # noqa: SLF001 - the program itself

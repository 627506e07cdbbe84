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
from simulation.api.server import ApiServer
from tests.support.agent.fake_api import FakeApi

LEASE_GROUP = "coordination.k8s.io/v1"
LEASES = f"/apis/{LEASE_GROUP}/namespaces/purelb-system/leases"
NAMED = {"namespace": "purelb-system", "name": "purelb-allocator"}
LOCK = f"{LEASES}/purelb-allocator"
OF_ANOTHER = {"holderIdentity": "b", "leaseDurationSeconds": 15}
LISTS = (
    LEASES,
    "/apis/purelb.io/v2/servicegroups",
    "/api/v1/services",
    "/api/v1/nodes",
    "/api/v1/namespaces/default/events",
)


class Cluster(FakeApi):
    """An API server with a lock that no one has; also takes the place of both clients."""

    def __init__(self):
        super().__init__(ApiServer())
        self.settled = False
        self.hold({})

    @property
    def ends(self):
        """What was done at the end, in order."""
        freed = [r for r in self.sent("PATCH", LOCK) if not r.body["spec"].get("holderIdentity")]
        return ["settled"] * self.settled + ["released"] * len(freed)

    def hold(self, spec):
        """Write the lock as another replica does."""
        self.put(f"/apis/{LEASE_GROUP}/leases", {"metadata": dict(NAMED), "spec": spec})

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def settle(self):
        assert self.ends == []
        self.settled = True


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
    cluster.hold(OF_ANOTHER)
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
    cluster.hold(OF_ANOTHER)
    task = await program()
    stop.set()
    await task
    assert cluster.ends == ["settled"]
    assert cluster.find(LOCK)["spec"]["holderIdentity"] == "b"


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

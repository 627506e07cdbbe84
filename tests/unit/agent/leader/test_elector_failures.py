# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Electors in virtual time: every failure of the lock's requests, lost news, cancellation."""

from __future__ import annotations

import asyncio
import contextlib
from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry

from purelb_agent.kube.client import ApiError
from purelb_agent.leader.elector import Elector, LeadershipLostError, Lock
from purelb_agent.leader.metrics import LeaderMetrics
from purelb_agent.runtime import clock
from purelb_agent.runtime.metrics import MetricFactory
from simulation.api.server import ApiServer, target_of
from tests.support.agent.cancellation import cancel_at_each_await
from tests.support.agent.fake_api import FakeApi

LOCK = Lock("purelb-system")
LEASES = "/apis/coordination.k8s.io/v1/leases"
METRIC = "purelb_allocator_is_leader"


class LockServer:
    """Keeps the Lease; the elector under test is told of nothing but answers."""

    def __init__(self):
        self.api = FakeApi(ApiServer())

    @property
    def lease(self):
        return self.api.find(LOCK.path)

    def store(self, spec):
        metadata = {"name": LOCK.name, "namespace": "purelb-system"}
        self.api.put(LEASES, {"metadata": metadata, "spec": spec})
        return self.lease

    def drop(self):
        """Delete the Lease; return what it was."""
        gone = self.lease
        self.api.server.objects.drop(target_of(LOCK.path).key)
        return gone

    @property
    def holder(self):
        return self.lease["spec"].get("holderIdentity") if self.lease else None


@pytest.fixture
def server():
    return LockServer()


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def elector(server, registry):
    return Elector(server.api, LOCK, "a", metrics=LeaderMetrics(MetricFactory(registry)))


@pytest.fixture
async def running(elector):
    """The elector's task, which has been told that there is no lock."""
    elector.replace([], asked_at=0.0)
    task = asyncio.create_task(elector.run())
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


class TestAcquisition:
    async def test_a_lock_that_does_not_exist_is_created(self, server, elector, running, registry):
        await elector.elected.wait()
        assert server.holder == "a"
        assert registry.get_sample_value(METRIC) == 1
        (request,) = server.api.sent("POST")
        assert request.body["metadata"]["name"] == LOCK.name

    async def test_nothing_is_written_before_the_lock_was_listed(self, server, elector):
        task = asyncio.create_task(elector.run())
        await asyncio.sleep(60)
        assert server.api.requests == []
        assert not elector.has_looked
        task.cancel()
        await asyncio.wait({task})

    async def test_a_lock_that_another_replica_created_is_watched(self, server, elector, running):
        server.store({"holderIdentity": "b", "leaseDurationSeconds": 15, "leaseTransitions": 0})
        while not server.api.sent("GET"):  # noqa: ASYNC110 - the server has no news for tests
            await asyncio.sleep(0.1)
        read_at = clock.now()
        assert [r.method for r in server.api.requests] == ["POST", "GET"]
        await elector.elected.wait()
        assert clock.now() - read_at == pytest.approx(15, abs=0.2)
        assert server.holder == "a"

    @pytest.mark.parametrize("status", [0, 403, 500])
    async def test_a_failed_write_is_retried_each_period(self, server, elector, running, status):
        server.api.answer("POST", LOCK.collection, ApiError(status, "no"), times=3)
        await elector.elected.wait()
        times = [request.at for request in server.api.sent("POST")]
        assert [moment - times[0] for moment in times] == pytest.approx([0, 2, 4, 6])

    async def test_failures_in_a_row_are_logged_once(self, server, elector, running, caplog):
        server.api.answer("POST", LOCK.collection, ApiError(500, "no"), times=3)
        await elector.elected.wait()
        assert [r.message for r in caplog.records].count("lockNotWritten") == 1

    @pytest.mark.parametrize("status", [404, 500], ids=["gone-again", "read-fails"])
    async def test_a_conflict_whose_read_fails_is_retried(self, server, elector, running, status):
        server.api.answer("POST", LOCK.collection, ApiError(409, "exists"), times=1)
        server.api.answer("GET", LOCK.path, ApiError(status, "no"), times=1)
        await elector.elected.wait()
        assert server.holder == "a"

    async def test_a_deleted_lock_is_created_again(self, server, elector, running):
        await elector.elected.wait()
        gone = server.drop()
        elector.drop(gone)
        await asyncio.sleep(3)
        assert server.holder == "a"
        assert not running.done()


class TestDeadline:
    async def test_a_leader_renews_each_retry_period(self, server, elector, running):
        await elector.elected.wait()
        await asyncio.sleep(60.5)
        times = [request.at for request in server.api.sent("PATCH")]
        assert len(times) == 30
        assert all(later - before == 2 for before, later in pairwise(times))
        assert 7.9 < elector.seconds_left() <= 10

    @pytest.mark.parametrize("status", [0, 403, 500])
    async def test_leadership_ends_ten_seconds_after_the_last_good_renewal(
        self, server, elector, running, registry, status
    ):
        await elector.elected.wait()
        began = clock.now()
        server.api.answer("PATCH", LOCK.path, ApiError(status, "no"))
        with pytest.raises(LeadershipLostError, match="notRenewed"):
            await running
        assert clock.now() - began == pytest.approx(10, abs=0.01)
        assert elector.seconds_left() == 0
        assert registry.get_sample_value(METRIC) == 0

    async def test_renewals_without_an_answer_end_leadership_in_time(
        self, server, elector, running
    ):
        await elector.elected.wait()
        began = clock.now()
        server.api.hang("PATCH", LOCK.path)
        with pytest.raises(LeadershipLostError, match="notRenewed"):
            await running
        assert 10 <= clock.now() - began <= 12
        assert server.api.under_way == 0

    async def test_failures_shorter_than_the_deadline_do_not_end_leadership(
        self, server, elector, running
    ):
        await elector.elected.wait()
        server.api.answer("PATCH", LOCK.path, ApiError(500, "no"), times=3)
        await asyncio.sleep(30)
        assert not running.done()
        assert elector.seconds_left() > 0

    async def test_another_holder_ends_leadership_at_once(self, server, elector, running):
        await elector.elected.wait()
        elector.put(server.store({"holderIdentity": "b", "leaseDurationSeconds": 15}))
        with pytest.raises(LeadershipLostError, match="superseded"):
            await running

    async def test_a_call_of_another_system_must_end_before_the_last_write(self, elector, running):
        await elector.elected.wait()
        assert elector.may_ask(takes=5.0)
        assert not elector.may_ask(takes=14.1)


class TestRelease:
    async def test_the_holder_gives_the_lock_up(self, server, elector, running):
        await elector.elected.wait()
        await elector.release()
        assert not server.holder

    async def test_a_conflict_is_retried_on_the_newer_lock(self, server, elector, running):
        await elector.elected.wait()
        server.api.answer("PATCH", LOCK.path, ApiError(409, "modified"), times=2)
        await elector.release()
        assert not server.holder
        assert len(server.api.sent("PATCH")) == 3

    async def test_it_is_given_up_after_three_conflicts(self, server, elector, running):
        await elector.elected.wait()
        server.api.answer("PATCH", LOCK.path, ApiError(409, "modified"))
        await elector.release()
        assert len(server.api.sent("PATCH")) == 3

    @pytest.mark.parametrize("status", [0, 403, 500])
    async def test_another_failure_is_logged_and_not_retried(
        self, server, elector, running, caplog, status
    ):
        await elector.elected.wait()
        server.api.answer("GET", LOCK.path, ApiError(status, "no"))
        await elector.release()
        assert len(server.api.sent("GET")) == 1
        assert "lockNotReleased" in [record.message for record in caplog.records]

    async def test_a_lock_that_does_not_exist_needs_no_release(self, server, elector):
        await elector.release()
        assert [request.method for request in server.api.requests] == ["GET"]

    async def test_a_lock_of_another_holder_is_left_alone(self, server, elector):
        server.store({"holderIdentity": "b", "leaseDurationSeconds": 15})
        await elector.release()
        assert server.holder == "b"

    async def test_after_leadership_was_lost_nothing_is_written(self, server, elector, running):
        await elector.elected.wait()
        elector.put(server.store({"holderIdentity": "b", "leaseDurationSeconds": 15}))
        with pytest.raises(LeadershipLostError):
            await running
        await elector.release()
        assert server.holder == "b"


class TestCancellation:
    async def test_a_cancelled_elector_leaves_no_request_and_a_lock_it_can_release(self):
        servers = []

        async def acquire():
            servers.append(server := LockServer())
            metrics = LeaderMetrics(MetricFactory(CollectorRegistry()))
            server.elector = Elector(server.api, LOCK, "a", metrics=metrics)
            server.elector.replace([], asked_at=0.0)
            async with asyncio.timeout(35):
                await server.elector.run()

        with contextlib.suppress(TimeoutError):
            async for interruption in cancel_at_each_await(acquire):
                server = servers[-1]
                assert server.api.under_way == 0, interruption
                await server.elector.release()
                assert not server.holder, interruption
        assert len(servers) > 5

    async def test_a_cancelled_release_leaves_a_lock_that_expires(self, server, elector, running):
        await elector.elected.wait()
        async for interruption in cancel_at_each_await(elector.release):
            assert server.api.under_way == 0, interruption
            assert elector.seconds_left() == 0, interruption
        assert not server.holder


class Recorder:
    def __init__(self):
        self.recorded = []

    def record(self, about, reason, message):
        self.recorded.append((about.kind, about.name, about.uid, reason, message))


async def test_an_event_on_the_lock_names_the_leader(server, elector, running):
    await elector.elected.wait()
    events = Recorder()
    elector.record_event(events)
    (event,) = events.recorded
    uid = server.lease["metadata"]["uid"]
    assert event[:4] == ("Lease", LOCK.name, uid, "LeaderElected")
    assert event[4].startswith("a ")

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Electors and LeaderKube against a server that keeps a Lease under versions, as the API does."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import time
from contextlib import contextmanager

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from purelb.core.leadership.leader import LeaderTiming
from purelb_agent.kube import http
from purelb_agent.kube.client import ApiError, Kube
from purelb_agent.kube.http import PodAccess
from purelb_agent.kube.watch import Watcher
from purelb_agent.leader import leader_kube
from purelb_agent.leader.elector import Elector, LeadershipLostError, Lock
from purelb_agent.leader.leader_kube import LeaderKube
from purelb_agent.leader.metrics import LeaderMetrics
from purelb_agent.runtime import clock
from purelb_agent.runtime.metrics import MetricFactory

pytestmark = pytest.mark.real_time

LOCK = Lock("purelb-system")
SERVICE = "/api/v1/namespaces/default/services/web"
TIMING = LeaderTiming(retry_period=0.1)
# For one that must succeed at once: while the clock stands still, no second attempt follows.
PATIENT = LeaderTiming(retry_period=5.0)


class ApiServer:
    """One Lease and one Service; what is written of the Service, with the query of each write."""

    def __init__(self):
        self.lease, self.written, self.delay = None, [], 0.0
        # Set when a write has arrived, before it is delayed.
        self.arrived = asyncio.Event()
        self._version = 0
        self._log = []

    def store(self, lease, kind="MODIFIED"):
        self._version += 1
        meta = {**lease["metadata"], "uid": "u", "resourceVersion": str(self._version)}
        stored = {**lease, "metadata": meta}
        self.lease = None if kind == "DELETED" else stored
        self._log.append((self._version, {"type": kind, "object": stored}))
        return stored

    def restore(self, backup):
        self.lease, self._version = backup, int(backup["metadata"]["resourceVersion"])
        self._log = [entry for entry in self._log if entry[0] <= self._version]

    def label(self):
        self.store({**self.lease, "labels": "more"})

    def delete(self):
        self.store(self.lease, "DELETED")

    async def create(self, request):
        if self.lease is not None:
            return web.json_response({"message": "exists"}, status=409)
        return web.json_response(self.store(await request.json(), "ADDED"))

    async def patch(self, request):
        body = await request.json()
        if self.lease is None:
            return web.json_response({"message": "gone"}, status=404)
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            return web.json_response({"message": "modified"}, status=409)
        return web.json_response(self.store({**self.lease, "spec": body["spec"]}))

    async def read(self, _request):
        if self.lease is None:
            return web.json_response({"message": "gone"}, status=404)
        return web.json_response(self.lease)

    async def list_or_watch(self, request):
        assert request.query["fieldSelector"] == f"metadata.name={LOCK.name}"
        if "watch" not in request.query:
            items = [self.lease] if self.lease else []
            meta = {"resourceVersion": str(self._version)}
            return web.json_response({"items": items, "metadata": meta})
        answer = web.StreamResponse()
        await answer.prepare(request)
        seen = int(request.query["resourceVersion"])
        while request.transport is not None:
            for version, event in self._log:
                if version > seen:
                    seen = version
                    await answer.write(json.dumps(event).encode() + b"\n")
            await asyncio.sleep(0.005)
        return answer

    async def write_service(self, request):
        self.arrived.set()
        await asyncio.sleep(self.delay)
        body = await request.json()
        self.written.append((body, dict(request.query)))
        return web.json_response(body)

    async def read_service(self, request):
        return web.json_response({"query": dict(request.query)})


@pytest.fixture
async def api(serve):
    server, app = ApiServer(), web.Application()
    app.router.add_get(LOCK.collection, server.list_or_watch)
    app.router.add_post(LOCK.collection, server.create)
    app.router.add_get(LOCK.path, server.read)
    app.router.add_patch(LOCK.path, server.patch)
    app.router.add_get(SERVICE, server.read_service)
    app.router.add_patch(SERVICE, server.write_service)
    server.access = await serve(app)
    # As the installation makes it.
    server.store({"metadata": {"name": LOCK.name}})
    return server


@pytest.fixture
def sleep_through(monkeypatch):
    """Let time pass for the programs without their doing anything."""
    start, slept = clock.now, [0.0]
    monkeypatch.setattr(clock, "now", lambda: start() + slept[0])

    def sleep(seconds):
        slept[0] += seconds

    sleep.slept = slept
    return sleep


@pytest.fixture
def standing_clock(sleep_through):
    """Stop the programs' clock for a while, in which it moves only by `sleep_through`."""

    @contextmanager
    def stop():
        moment, so_far = clock.now(), sleep_through.slept[0]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(clock, "now", lambda: moment + sleep_through.slept[0] - so_far)
            yield

    return stop


class Replica:
    def __init__(self, connection, name, timing):
        metrics = LeaderMetrics(MetricFactory(CollectorRegistry()))
        self.elector = Elector(connection, LOCK, name, metrics=metrics, timing=timing)
        only = {"fieldSelector": f"metadata.name={LOCK.name}"}
        self.follows = asyncio.create_task(
            Watcher(connection, LOCK.collection, self.elector, params=only).run()
        )
        self.runs = asyncio.create_task(self.elector.run())

    async def elected(self):
        async with asyncio.timeout(5):
            await self.elector.elected.wait()

    async def end(self):
        for task in (self.runs, self.follows):
            task.cancel()
        await asyncio.gather(self.runs, self.follows, return_exceptions=True)


@pytest.fixture
async def replica(api):
    made = []
    async with Kube(api.access) as connection:

        def begin(name, timing=TIMING):
            made.append(Replica(connection, name, timing))
            return made[-1]

        yield begin
        for elector in made:
            await elector.end()


def spec(api):
    return api.lease["spec"]


async def until(is_true):
    async with asyncio.timeout(5):
        while not is_true():  # noqa: ASYNC110 - the server has no news for tests
            await asyncio.sleep(0.005)


async def test_free_lock_is_acquired_at_once_and_renewed(api, replica):
    first = replica("a")
    await first.elected()
    assert (spec(api)["holderIdentity"], spec(api)["leaseTransitions"]) == ("a", 0)
    acquired, renewed = spec(api)["acquireTime"], spec(api)["renewTime"]
    await until(lambda: spec(api)["renewTime"] != renewed)
    assert spec(api)["acquireTime"] == acquired
    assert 9 < first.elector.seconds_left() <= 10
    assert first.elector.may_ask(takes=5.0)
    assert not first.elector.may_ask(takes=15.0)


async def test_standby_may_not_write_and_acquires_a_released_lock(api, replica, standing_clock):
    first = replica("a")
    await first.elected()
    second = replica("b", PATIENT)
    await until(lambda: second.elector.has_looked)
    assert second.elector.seconds_left() == 0
    await first.end()
    # Who waits for anything but the news of the release waits for ever.
    with standing_clock():
        await first.elector.release()
        assert first.elector.seconds_left() == 0
        await second.elected()
    assert (spec(api)["holderIdentity"], spec(api)["leaseTransitions"]) == ("b", 1)


async def test_lock_of_another_holder_is_not_released(api, replica):
    first = replica("a")
    await first.elected()
    second = replica("b")
    await until(lambda: second.elector.has_looked)
    await second.end()
    await second.elector.release()
    assert spec(api)["holderIdentity"] == "a"


async def test_dead_holder_is_replaced_after_a_full_duration(
    api, replica, sleep_through, standing_clock
):
    first = replica("a")
    await first.elected()
    await first.end()
    # Otherwise a pause of this process would be part of the duration.
    with standing_clock():
        second = replica("b")
        await until(lambda: second.elector.has_looked)
        sleep_through(14.5)
        api.label()
        await asyncio.sleep(0.05)
        assert not second.elector.elected.is_set()
    sleep_through(1)
    api.label()
    await second.elected()
    assert spec(api)["holderIdentity"] == "b"


async def test_leader_suspended_past_its_deadline_may_not_write_and_ends(
    api, replica, sleep_through
):
    first = replica("a")
    await first.elected()
    async with LeaderKube(api.access, first.elector) as writer:
        await writer.request("PATCH", SERVICE, {"n": 1})
        sleep_through(10)
        with pytest.raises(ApiError, match="does not lead"):
            await writer.request("PATCH", SERVICE, {"n": 2})
    with pytest.raises(LeadershipLostError, match="notRenewed"):
        await first.runs
    assert [body for body, _query in api.written] == [{"n": 1}]


async def test_leader_that_sees_another_holder_ends(api, replica):
    first = replica("a")
    await first.elected()
    api.store({**api.lease, "spec": {**spec(api), "holderIdentity": "b"}})
    with pytest.raises(LeadershipLostError, match="superseded"):
        await first.runs
    assert spec(api)["holderIdentity"] == "b"


async def test_holder_keeps_a_lock_that_others_label_or_delete(api, replica):
    first = replica("a")
    await first.elected()
    for change in (api.label, api.delete):
        before = spec(api)["renewTime"]
        change()
        await until(lambda b=before: api.lease and spec(api)["renewTime"] != b)
        assert spec(api)["holderIdentity"] == "a"
    assert not first.runs.done()


async def test_in_an_older_store_the_leader_ends_and_another_takes_over(
    api, replica, sleep_through, standing_clock
):
    first, second = replica("a"), replica("b")
    await until(lambda: first.elector.elected.is_set() or second.elector.elected.is_set())
    leader, other = (first, second) if first.elector.elected.is_set() else (second, first)
    backup = api.lease
    before = int(backup["metadata"]["resourceVersion"])
    await until(lambda: int(api.lease["metadata"]["resourceVersion"]) > before + 2)
    api.restore(backup)
    sleep_through(10)
    with pytest.raises(LeadershipLostError, match="notRenewed"):
        await leader.runs
    with standing_clock():
        other.elector.replace([backup], asked_at=clock.now())
        sleep_through(14.5)
        other.elector.replace([backup], asked_at=clock.now())
        await asyncio.sleep(0.05)
        assert not other.elector.elected.is_set()
    sleep_through(1)
    other.elector.replace([backup], asked_at=clock.now())
    await other.elected()


class Fence:
    """Returns the given answers, then the last one again and again."""

    def __init__(self, *answers):
        self._answers = list(answers)

    def seconds_left(self):
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]


async def test_write_has_a_server_timeout_and_a_read_has_none(api):
    async with LeaderKube(api.access, Fence(5.0, 5.0, 0.0)) as writer:
        await writer.request("PATCH", SERVICE, {"n": 1}, params={"a": "b"})
        assert await writer.request("GET", SERVICE) == {"query": {}}
    assert api.written == [({"n": 1}, {"a": "b", "timeout": "2s"})]


async def test_write_is_not_sent_if_leadership_ends_while_it_connects(api):
    async with LeaderKube(api.access, Fence(5.0, 0.0)) as writer:
        with pytest.raises(ApiError):
            await writer.request("PATCH", SERVICE, {"n": 1})
    await asyncio.sleep(0.05)
    assert api.written == []


async def test_head_and_body_of_a_write_are_sent_together(certificate):
    # A process that is frozen between parts of a request would end it when it resumes.
    parts = []

    async def take(reader, writer):
        parts.append(await reader.read(65536))
        parts.append(await reader.read(65536))
        writer.close()

    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificate / "crt", certificate / "key")
    server = await asyncio.start_server(take, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    access = PodAccess(f"https://127.0.0.1:{port}", certificate / "crt", certificate / "token")
    async with server, LeaderKube(access, Fence(5.0)) as writer:
        sent = asyncio.create_task(writer.request("PATCH", SERVICE, {"n": 1}))
        # No timeout instead: it might end while the connection is made.
        await until(lambda: parts)
        sent.cancel()
        await asyncio.gather(sent, return_exceptions=True)
        await until(lambda: len(parts) == 2)
    assert parts[0].startswith(b"PATCH ")
    assert parts[0].endswith(b'\r\n\r\n{"n": 1}')
    assert parts[1] == b""


async def test_write_times_out_when_leadership_ends(api):
    api.delay = 1.0
    async with LeaderKube(api.access, Fence(0.1)) as writer:
        with pytest.raises(ApiError, match=r"no answer within 0\.1 s"):
            await writer.request("PATCH", SERVICE, {"n": 1})


async def test_settle_awaits_the_pending_answer_and_refuses_further_writes(api):
    api.delay = 0.2
    async with LeaderKube(api.access, Fence(5.0)) as writer:
        sent = asyncio.create_task(writer.request("PATCH", SERVICE, {"n": 1}))
        await api.arrived.wait()
        await writer.settle()
        assert api.written
        assert await sent == {"n": 1}
        with pytest.raises(ApiError, match="about to end"):
            await writer.request("PATCH", SERVICE, {"n": 2})


async def test_settle_waits_until_an_unanswered_write_can_no_longer_arrive(api, monkeypatch):
    monkeypatch.setattr(leader_kube, "ON_THE_WIRE", 0.2)
    monkeypatch.setattr(leader_kube, "AT_THE_SERVER", 0.2)
    api.delay = 1.0
    async with LeaderKube(api.access, Fence(5.0)) as writer:
        sent = asyncio.create_task(writer.request("PATCH", SERVICE, {"n": 1}))
        await api.arrived.wait()
        start = time.monotonic()
        sent.cancel()
        await asyncio.gather(sent, return_exceptions=True)
        await writer.settle()
        assert time.monotonic() - start > 0.35


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_INET6], ids=["v4", "v6"])
def test_kernel_timeout_of_the_leaders_sockets_is_shorter(family):
    address = (family, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", ())
    for seconds in (10.0, leader_kube.ON_THE_WIRE):
        with http._socket_factory(seconds)(address) as made:  # noqa: SLF001 - an option of the kernel's
            option = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert option == seconds * 1000

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The queue of Kubernetes events against a fake API."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from purelb_agent.kube.client import ApiError
from purelb_agent.kube.events import Events, ObjectReference
from purelb_agent.runtime import clock
from tests.support.agent.cancellation import cancel_at_each_await
from tests.support.agent.fake_api import FakeApi

PATH = "/api/v1/namespaces/default/events"
WEB = ObjectReference("Service", "web", "default", "uid-web")


@pytest.fixture
def api():
    made = FakeApi()
    made.answer("POST", PATH, {})
    return made


@pytest.fixture
async def events(api):
    made = Events(api, component="lbnodeagent", instance="n1")
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def sent(api):
    return [request.body["message"] for request in api.sent("POST")]


async def test_an_event_has_the_fields_of_both_event_apis(api, events):
    events.record(WEB, "AddressConflict", "text", kind="Warning")
    await asyncio.sleep(1)
    (body,) = [request.body for request in api.sent("POST")]
    name = body["metadata"].pop("name")
    assert name.startswith("web.")
    assert body == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "default"},
        "involvedObject": {
            "kind": "Service",
            "apiVersion": "v1",
            "name": "web",
            "namespace": "default",
            "uid": "uid-web",
        },
        "reason": "AddressConflict",
        "message": "text",
        "type": "Warning",
        "action": "AddressConflict",
        "source": {"component": "lbnodeagent", "host": "n1"},
        "reportingComponent": "purelb.io/lbnodeagent",
        "reportingInstance": "n1",
        "firstTimestamp": "2026-01-01T00:00:00Z",
        "lastTimestamp": "2026-01-01T00:00:00Z",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "count": 1,
    }


async def test_an_event_about_a_cluster_scoped_object_is_in_the_default_namespace(api, events):
    events.record(ObjectReference("Node", "n1"), "OutageHeld", "text")
    await asyncio.sleep(1)
    (request,) = api.sent("POST", PATH)
    assert request.body["involvedObject"] == {"kind": "Node", "apiVersion": "v1", "name": "n1"}


async def test_the_time_of_an_event_is_when_it_was_recorded(api, events):
    api.hang("POST", PATH)
    events.record(WEB, "Withdrawn", "first")
    events.record(WEB, "Withdrawn", "second")
    await asyncio.sleep(5)
    api.resume("POST", PATH)
    await asyncio.sleep(1)
    times = {request.body["eventTime"] for request in api.sent("POST")}
    assert times == {"2026-01-01T00:00:00.000000Z"}


async def test_names_of_events_differ(api, events):
    for _event in range(10):
        events.record(WEB, "Withdrawn", "text")
    await asyncio.sleep(1)
    assert len({request.body["metadata"]["name"] for request in api.sent("POST")}) == 10


async def test_events_are_sent_in_order_at_20_per_second(api, events):
    for number in range(100):
        events.record(WEB, "Withdrawn", str(number))
    began = clock.now()
    await asyncio.sleep(10)
    assert sent(api) == [str(number) for number in range(100)]
    last = api.sent("POST")[-1].at - began
    assert last == pytest.approx(99 / 20)


async def test_beyond_1000_queued_events_the_oldest_are_dropped(api, events):
    for number in range(1100):
        events.record(WEB, "Withdrawn", str(number))
    await asyncio.sleep(120)
    assert sent(api) == [str(number) for number in range(100, 1100)]


@pytest.mark.parametrize("status", [0, 403, 409, 500])
async def test_a_refused_event_is_dropped_and_the_next_one_sent(api, events, status, caplog):
    caplog.set_level("DEBUG", "purelb")
    api.answer("POST", PATH, ApiError(status, "no"), times=1)
    events.record(WEB, "Withdrawn", "first")
    events.record(WEB, "Withdrawn", "second")
    await asyncio.sleep(1)
    assert sent(api) == ["first", "second"]
    assert caplog.messages == ["eventNotSent"]


async def test_an_event_recorded_while_another_is_sent_is_sent_too(api, events):
    api.hang("POST", PATH)
    events.record(WEB, "Withdrawn", "first")
    await asyncio.sleep(1)
    events.record(WEB, "Withdrawn", "second")
    api.resume("POST", PATH)
    await asyncio.sleep(1)
    assert sent(api) == ["first", "second"]


async def test_cancellation_leaves_no_request():
    apis = []

    async def work():
        api = FakeApi()
        apis.append(api)
        api.answer("POST", PATH, {})
        made = Events(api, component="allocator", instance="a")
        made.record(WEB, "Withdrawn", "text")
        with suppress(TimeoutError):
            async with asyncio.timeout(1):
                await made.run()

    async for interruption in cancel_at_each_await(work):
        assert apis[-1].under_way == 0, interruption
    assert len(apis) > 2


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("xyz", "xyz"),
        ("x" * 1024, "x" * 1024),
        ("x" * 1025, "x" * 1021 + "…"),
        ("ü" * 512, "ü" * 512),
        ("ü" * 513, "ü" * 510 + "…"),
        ("\ud800x", "?x"),
    ],
    ids=["short", "full", "too-long", "full-umlauts", "too-many-umlauts", "surrogate"],
)
async def test_a_message_is_cut_to_the_bytes_that_the_api_server_accepts(
    api, events, message, expected
):
    events.record(WEB, "AllocationFailed", message)
    await asyncio.sleep(1)
    assert sent(api) == [expected]
    assert len(expected.encode()) <= 1024

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A watcher against a fake API: what it lists, when it lists again, and what it passes on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from itertools import pairwise

import pytest

from purelb_agent.kube.client import ApiError
from purelb_agent.kube.watch import Watcher
from purelb_agent.runtime import clock
from tests.support.agent.cancellation import cancel_at_each_await
from tests.support.agent.fake_api import FakeApi

PATH = "/things"


class RecordedSink:
    """Keeps what it receives, and when each list was requested."""

    def __init__(self):
        self.calls = []
        self.requested_at = []

    def replace(self, items, *, asked_at):
        self.calls.append(("replace", [item["metadata"]["name"] for item in items]))
        self.requested_at.append(asked_at)

    def put(self, item):
        self.calls.append(("put", item["metadata"]["name"]))

    def drop(self, item):
        self.calls.append(("drop", item["metadata"]["name"]))


def thing(name, version="2", **more):
    return {"metadata": {"name": name, "resourceVersion": version, **more}}


def page(*items, version="1", more=""):
    return {"items": list(items), "metadata": {"resourceVersion": version, "continue": more}}


@pytest.fixture
def api():
    made = FakeApi()
    made.answer("GET", PATH, page())
    return made


@pytest.fixture
def sink():
    return RecordedSink()


@pytest.fixture
async def start(api, sink):
    """Start a watcher."""
    tasks = []

    def start():
        made = Watcher(api, PATH, sink, params={"fieldSelector": "spec.type=LoadBalancer"})
        tasks.append(asyncio.create_task(made.run()))
        return made

    yield start
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
async def watcher(start):
    """A watcher that has listed once and watches."""
    made = start()
    await settle()
    return made


def lists(api):
    """The lists; of one that only asks for the version, one object is enough."""
    return [request for request in api.sent("GET") if request.params["limit"] != "1"]


def moments(api, method):
    """When each request came, after the first list."""
    began = api.sent("GET")[0].at
    return [request.at - began for request in api.sent(method)]


async def settle():
    await asyncio.sleep(0.01)


class TestList:
    async def test_a_list_replaces_everything(self, api, sink, start):
        api.answer("GET", PATH, page(thing("a"), thing("b")))
        start()
        await settle()
        assert sink.calls == [("replace", ["a", "b"])]

    async def test_pages_are_one_list_of_the_moment_of_the_first_request(self, api, sink, start):
        began = clock.now()

        def answer(request):
            asyncio.get_running_loop().call_later(1, api.resume, "GET", PATH)
            api.hang("GET", PATH)
            is_second = request.params.get("continue") == "second"
            return page(thing("b")) if is_second else page(thing("a"), more="second")

        api.answer("GET", PATH, answer)
        start()
        await asyncio.sleep(3)
        assert sink.calls == [("replace", ["a", "b"])]
        assert sink.requested_at == [began]

    async def test_managed_fields_are_dropped(self, api, start):
        held = thing("a", managedFields=[{"manager": "kubectl"}])
        api.answer("GET", PATH, page(held))
        start()
        await settle()
        assert "managedFields" not in held["metadata"]

    async def test_of_managed_fields_the_last_time_stays(self, api, start):
        times = ["2026-01-01T00:00:09Z", "2026-01-01T00:00:10Z", ""]
        managed = [{"manager": "kubectl", "fieldsV1": {}, "time": time} for time in times]
        held = thing("a", managedFields=managed)
        api.answer("GET", PATH, page(held))
        start()
        await settle()
        assert held["metadata"]["managedFields"] == [{"time": "2026-01-01T00:00:10Z"}]

    async def test_the_selector_limits_both_the_list_and_the_watch(self, api, watcher):
        await settle()
        for request in api.requests:
            assert request.params["fieldSelector"] == "spec.type=LoadBalancer"

    @pytest.mark.parametrize("status", [0, 403, 500])
    async def test_a_failed_list_is_retried_after_half_a_second_to_a_second(
        self, api, sink, start, status, caplog
    ):
        api.answer("GET", PATH, ApiError(status, "no"), times=5)
        start()
        await asyncio.sleep(10)
        retries = moments(api, "GET")
        pauses = [later - earlier for earlier, later in pairwise(retries)]
        assert len(pauses) == 5
        assert all(0.5 <= pause <= 1.0 for pause in pauses)
        assert caplog.messages.count("watchFailed") == 1
        assert sink.calls == [("replace", [])]

    async def test_a_list_that_hangs_fails_after_ten_seconds(self, api, start):
        api.hang("GET", PATH)
        start()
        await asyncio.sleep(9.9)
        assert len(api.requests) == 1
        await asyncio.sleep(1.5)
        assert len(api.requests) == 2


class TestWatch:
    async def test_it_begins_at_the_version_of_the_list(self, api, start):
        api.answer("GET", PATH, page(version="17"))
        start()
        await settle()
        (request,) = api.sent("WATCH")
        assert request.params["resourceVersion"] == "17"
        assert request.params["allowWatchBookmarks"] == "true"
        assert 60 <= int(request.params["timeoutSeconds"]) <= 110

    async def test_one_that_the_server_does_not_end_in_time_is_restarted(
        self, api, watcher, caplog
    ):
        (request,) = api.sent("WATCH")
        limit = int(request.params["timeoutSeconds"])
        await asyncio.sleep(limit + 9)
        assert request.outcome == "pending"
        await asyncio.sleep(3)
        assert [watch.outcome for watch in api.sent("WATCH")] == ["cancelled", "pending"]
        assert caplog.records[0].fields["error"] == f"the watch should have ended after {limit} s"

    async def test_one_that_is_never_accepted_is_given_up_as_well(self, api, start):
        api.hang("WATCH", PATH)
        start()
        await asyncio.sleep(121)
        assert len(api.sent("WATCH")) == 2

    @pytest.mark.parametrize(
        ("kind", "call"),
        [("ADDED", "put"), ("MODIFIED", "put"), ("DELETED", "drop"), ("BOOKMARK", None)],
    )
    async def test_an_event_reaches_the_sink(self, api, sink, watcher, kind, call):
        await settle()
        api.send(PATH, {"type": kind, "object": thing("a")})
        await settle()
        assert sink.calls[1:] == ([(call, "a")] if call else [])

    @pytest.mark.parametrize("kind", ["MODIFIED", "BOOKMARK"])
    async def test_a_watch_that_ends_is_resumed_at_once_from_the_last_event(
        self, api, watcher, kind
    ):
        await settle()
        api.send(PATH, {"type": kind, "object": thing("a", "99")})
        await asyncio.sleep(int(api.sent("WATCH")[0].params["timeoutSeconds"]))
        api.end_watch(PATH)
        await settle()
        assert api.sent("WATCH")[-1].params["resourceVersion"] == "99"
        assert len(api.sent("GET")) == 1

    @pytest.mark.parametrize("status", [0, 429, 500])
    async def test_a_broken_watch_is_resumed_without_a_list(self, api, watcher, status, caplog):
        await settle()
        api.end_watch(PATH, ApiError(status, "broken"))
        await asyncio.sleep(1.1)
        assert len(lists(api)) == 1
        assert len(api.sent("WATCH")) == 2
        assert caplog.messages == ["watchFailed"]

    async def test_an_error_event_is_a_failure_with_its_status(self, api, watcher, caplog):
        await settle()
        api.send(PATH, {"type": "ERROR", "object": {"code": 500, "message": "etcd"}})
        await asyncio.sleep(1.1)
        assert len(api.sent("WATCH")) == 2
        assert caplog.records[0].fields["error"] == "etcd"

    async def test_each_outage_is_logged_once_with_its_end(self, api, watcher, caplog):
        caplog.set_level("INFO", "purelb")
        await settle()
        for _outage in range(2):
            api.answer("WATCH", PATH, ApiError(0, "down"), times=3)
            api.end_watch(PATH, ApiError(0, "down"))
            await asyncio.sleep(10)
        assert caplog.messages == ["watchFailed", "watchRecovered"] * 2


class TestExpiredVersion:
    @pytest.fixture(params=["error event", "refused watch"])
    def expire(self, request, api):
        """Let the API server answer that the version is too old."""

        def expire():
            error = ApiError(410, "too old")
            if request.param == "error event":
                api.send(PATH, {"type": "ERROR", "object": {"code": 410, "message": "too old"}})
            else:
                api.answer("WATCH", PATH, error, times=1)
                api.end_watch(PATH)

        return expire

    async def test_it_is_followed_by_a_list_at_once(self, api, watcher, expire):
        await asyncio.sleep(1.1)
        expire()
        await settle()
        assert moments(api, "GET") == pytest.approx([0.0, 1.1], abs=0.05)

    async def test_lists_come_no_closer_than_half_a_second(self, api, start):
        api.answer("WATCH", PATH, ApiError(410, "too old"))
        start()
        await asyncio.sleep(10)
        lists = moments(api, "GET")
        pauses = [later - earlier for earlier, later in pairwise(lists)]
        assert min(pauses) >= 0.5

    async def test_another_failure_needs_no_new_list(self, api, start):
        api.answer("WATCH", PATH, ApiError(429, "slow down"), times=1)
        start()
        await asyncio.sleep(5)
        assert moments(api, "GET") == [0.0]


class TestOtherStore:
    """A server with an older store takes watches at versions of the future, and says nothing."""

    @pytest.fixture
    async def version_ten(self, api, start):
        """A watch from version 10 on, of a server that now has version 9, with another object."""
        api.answer("GET", PATH, page(thing("a"), version="10"))
        start()
        await settle()
        api.answer("GET", PATH, page(thing("b"), version="9"))

    @pytest.mark.parametrize("status", [0, 500, 503])
    async def test_an_older_store_is_listed_at_once(self, api, sink, version_ten, status, caplog):
        caplog.set_level("INFO", "purelb")
        await asyncio.sleep(1)
        api.end_watch(PATH, ApiError(status, "broken"))
        await asyncio.sleep(1.1)
        assert sink.calls == [("replace", ["a"]), ("replace", ["b"])]
        assert [request.params["resourceVersion"] for request in api.sent("WATCH")] == [
            "10",
            "10",
            "9",
        ]
        assert caplog.messages == ["watchFailed", "watchRecovered"]

    async def test_a_watch_that_ends_before_its_time_may_be_of_an_older_store(
        self, api, sink, version_ten
    ):
        await asyncio.sleep(50)
        api.end_watch(PATH)
        await asyncio.sleep(1.1)
        assert sink.calls[1:] == [("replace", ["b"])]

    async def test_what_only_refuses_has_the_same_store(self, api, version_ten):
        await asyncio.sleep(1)
        api.end_watch(PATH, ApiError(429, "slow down"))
        await asyncio.sleep(1.1)
        assert len(api.sent("GET")) == 1

    async def test_a_store_that_does_not_answer_is_asked_again(self, api, sink, version_ten):
        api.answer("GET", PATH, ApiError(500, "no leader"), times=3)
        await asyncio.sleep(1)
        api.end_watch(PATH, ApiError(0, "broken"))
        await asyncio.sleep(5)
        assert sink.calls[1:] == [("replace", ["b"])]
        assert api.under_way == 1

    @pytest.mark.parametrize(("seconds", "count"), [(9, 1), (12, 2)])
    async def test_after_a_long_outage_a_list_is_needed_in_any_case(
        self, api, watcher, seconds, count
    ):
        api.end_watch(PATH, ApiError(0, "down"))
        api.hang("WATCH", PATH)
        await asyncio.sleep(seconds)
        api.resume("WATCH", PATH)
        await asyncio.sleep(1.1)
        assert len(lists(api)) == count

    async def test_after_a_silent_watch_a_list_is_needed_in_any_case(self, api, watcher):
        await asyncio.sleep(122)
        assert len(lists(api)) == 2


class TestRefresh:
    async def test_it_lists_at_once_over_a_new_stream(self, api, sink, watcher):
        await settle()
        watcher.refresh()
        await settle()
        assert len(sink.calls) == 2
        assert [request.outcome for request in api.sent("WATCH")] == ["cancelled", "pending"]

    async def test_before_the_first_list_it_changes_nothing(self, api, sink, start):
        start().refresh()
        await settle()
        assert len(sink.calls) == 1

    async def test_during_a_pause_it_lists_after_the_pause(self, api, sink, watcher):
        await settle()
        api.end_watch(PATH, ApiError(0, "down"))
        await settle()
        watcher.refresh()
        await settle()
        assert len(sink.calls) == 1
        await asyncio.sleep(1.0)
        assert len(sink.calls) == 2

    async def test_a_watcher_cancelled_during_a_refresh_ends(self, api, sink):
        made = Watcher(api, PATH, sink)
        task = asyncio.create_task(made.run())
        await settle()
        made.refresh()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert api.under_way == 0


async def test_cancellation_leaves_no_request_and_no_stream():
    apis = []

    async def work():
        api, sink = FakeApi(), RecordedSink()
        apis.append(api)
        api.answer("GET", PATH, page())
        api.answer("GET", PATH, ApiError(0, "down"), times=1)
        with suppress(TimeoutError):
            async with asyncio.timeout(5):
                await Watcher(api, PATH, sink).run()

    async for interruption in cancel_at_each_await(work):
        assert apis[-1].under_way == 0, interruption
    assert len(apis) > 4

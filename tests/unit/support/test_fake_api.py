# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import inspect
from unittest.mock import AsyncMock

import pytest

from purelb_agent.kube.client import ApiError, Kube
from purelb_agent.runtime import clock
from tests.support.agent.fake_api import FakeApi

PATH = "/api/v1/services"
EVENT = {"type": "ADDED", "object": {}}


@pytest.fixture
def api():
    return FakeApi()


@pytest.mark.parametrize("name", ["request", "watch"])
def test_its_methods_have_the_parameters_of_the_client(name):
    fake, real = (inspect.signature(getattr(owner, name)) for owner in (FakeApi, Kube))
    assert fake == real


class TestRequests:
    async def test_an_answer_is_given_again_and_again(self, api):
        api.answer("GET", PATH, {"items": []})
        assert await api.request("GET", PATH) == {"items": []}
        assert await api.request("GET", PATH, params={"limit": "1"}) == {"items": []}
        assert [request.params for request in api.sent("GET")] == [{}, {"limit": "1"}]

    async def test_an_answer_for_some_times_comes_before_the_lasting_one(self, api):
        api.answer("PATCH", PATH, lambda request: request.body)
        api.answer("PATCH", PATH, ApiError(409, "modified"), times=2)
        for _time in range(2):
            with pytest.raises(ApiError, match="modified") as refused:
                await api.request("PATCH", PATH, {"n": 1})
            assert refused.value.status == 409
        assert await api.request("PATCH", PATH, {"n": 1}) == {"n": 1}
        assert [request.outcome for request in api.requests] == ["refused", "refused", "answered"]

    async def test_a_request_without_an_answer_is_an_error_of_the_test(self, api):
        with pytest.raises(AssertionError, match=f"no answer is prepared for GET {PATH}"):
            await api.request("GET", PATH)

    async def test_a_request_that_hangs_ends_after_its_seconds(self, api):
        api.hang("GET", PATH)
        began = clock.now()
        with pytest.raises(ApiError, match="no answer within 3 s") as refused:
            await api.request("GET", PATH, seconds=3)
        assert refused.value.status == 0
        assert clock.now() == began + 3

    async def test_a_request_that_hangs_is_answered_later(self, api):
        api.hang("GET", PATH)
        api.answer("GET", PATH, {})
        task = asyncio.create_task(api.request("GET", PATH))
        await asyncio.sleep(1)
        assert api.under_way == 1
        api.resume("GET", PATH)
        assert await task == {}
        assert api.under_way == 0

    async def test_a_cancelled_request_is_noted(self, api):
        api.hang("GET", PATH)
        task = asyncio.create_task(api.request("GET", PATH))
        await asyncio.sleep(1)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert [request.outcome for request in api.requests] == ["cancelled"]


class TestWatches:
    @pytest.fixture
    async def watching(self, api):
        """A task that watches, and the events that it has seen."""
        seen, opened = [], AsyncMock()

        async def follow():
            async for event in api.watch(PATH, {}, on_open=opened):
                seen.append(event)  # noqa: PERF401 - each is looked at when it comes

        task = asyncio.create_task(follow())
        await asyncio.sleep(1)
        opened.assert_awaited_once()
        yield task, seen
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def test_events_arrive_until_the_stream_ends(self, api, watching):
        task, seen = watching
        api.send(PATH, EVENT)
        await asyncio.sleep(1)
        assert seen == [EVENT]
        api.end_watch(PATH)
        await task
        assert [request.outcome for request in api.sent("WATCH", PATH)] == ["answered"]

    async def test_an_error_ends_the_stream(self, api, watching):
        task, _seen = watching
        api.end_watch(PATH, ApiError(410, "too old"))
        with pytest.raises(ApiError, match="too old"):
            await task
        assert api.under_way == 0

    async def test_a_cancelled_watch_is_noted_and_gets_nothing(self, api, watching):
        task, _seen = watching
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert [request.outcome for request in api.requests] == ["cancelled"]
        with pytest.raises(AssertionError, match="no watch"):
            api.send(PATH, EVENT)

    async def test_a_refused_watch_does_not_open(self, api):
        api.answer("WATCH", PATH, ApiError(403, "forbidden"))
        opened = AsyncMock()
        stream = api.watch(PATH, {}, on_open=opened)
        with pytest.raises(ApiError, match="forbidden"):
            await anext(stream)
        opened.assert_not_called()

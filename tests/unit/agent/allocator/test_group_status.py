# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The task that writes the status of ServiceGroups, while they change."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest
from prometheus_client import CollectorRegistry

from purelb_agent.allocator.group_status import GroupStatus
from purelb_agent.allocator.metrics import AllocatorMetrics
from purelb_agent.kube.client import ApiError
from tests.support.agent.cancellation import cancel_at_each_await
from tests.support.agent.fake_api import FakeApi

NAMESPACE = "purelb-system"
METRIC = "purelb_allocator_sg_status_writes_total"


def path(name):
    return f"/apis/purelb.io/v2/namespaces/{NAMESPACE}/servicegroups/{name}/status"


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def api():
    api = FakeApi()
    for name in ("one", "other", "third"):
        api.answer("PATCH", path(name), lambda request: request.body)
    return api


@pytest.fixture
async def status(api, registry):
    status = GroupStatus(api, AllocatorMetrics(registry), namespace=NAMESPACE)
    for name in ("one", "other", "third"):
        status.learn(name, {})
    task = asyncio.create_task(status.run())
    yield status
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def written(api):
    return [(r.path.split("/")[-2], r.body["status"]) for r in api.sent("PATCH")]


async def test_only_the_difference_is_written(api, status, registry):
    status.learn("one", {"ipam": "Cluster", "old": 1})
    status.want("one", {"ipam": "Cluster", "addresses": []})
    await asyncio.sleep(1)
    assert written(api) == [("one", {"old": None, "addresses": []})]
    assert registry.get_sample_value(METRIC, {"outcome": "success"}) == 1


async def test_a_status_that_is_there_is_not_written(api, status):
    status.learn("one", {"ipam": "Cluster"})
    status.want("one", {"ipam": "Cluster"})
    await asyncio.sleep(1)
    assert api.requests == []


async def test_a_status_that_became_as_wanted_is_not_written(api, status):
    status.want("one", {"ipam": "Cluster"})
    status.learn("one", {"ipam": "Cluster"})
    await asyncio.sleep(1)
    assert api.requests == []


async def test_a_change_taken_back_is_not_written(api, status):
    status.want("one", {"ipam": "Cluster"})
    status.want("one", {})
    await asyncio.sleep(1)
    assert api.requests == []


async def test_many_changes_are_one_write_each_half_second(api, status):
    for number in range(20):
        status.want("one", {"allocatedIPv4": number})
        await asyncio.sleep(0.1)
    await asyncio.sleep(1)
    times = [request.at for request in api.sent("PATCH")]
    assert len(times) <= 6
    assert all(later - before >= 0.5 for before, later in pairwise(times))
    assert written(api)[-1] == ("one", {"allocatedIPv4": 19})


async def test_a_group_that_is_gone_while_another_is_written_is_passed_over(api, status):
    api.hang("PATCH", path("one"))
    for name in ("one", "other", "third"):
        status.want(name, {"ipam": "Cluster"})
    await asyncio.sleep(0.1)
    status.learn("other", None)
    api.resume("PATCH", path("one"))
    await asyncio.sleep(0.1)
    assert [name for name, _patch in written(api)] == ["one", "third"]
    assert status.names() == {"one", "third"}


async def test_a_group_that_is_gone_during_its_write_stays_forgotten(api, status):
    api.hang("PATCH", path("one"))
    status.want("one", {"ipam": "Cluster"})
    await asyncio.sleep(0.1)
    status.learn("one", None)
    api.resume("PATCH", path("one"))
    await asyncio.sleep(5)
    assert status.names() == {"other", "third"}
    assert len(api.requests) == 1


@pytest.mark.parametrize("code", [0, 403, 409, 500])
async def test_a_failed_write_is_retried_after_two_seconds(api, status, registry, code):
    api.answer("PATCH", path("one"), ApiError(code, "no"), times=3)
    status.want("one", {"ipam": "Cluster"})
    await asyncio.sleep(20)
    times = [request.at for request in api.sent("PATCH")]
    assert [later - before for before, later in pairwise(times)] == pytest.approx([2, 2, 2])
    assert registry.get_sample_value(METRIC, {"outcome": "error"}) == 3
    assert status.known("one") == {"ipam": "Cluster"}


async def test_a_group_that_the_api_does_not_know_is_not_retried(api, status):
    api.answer("PATCH", path("one"), ApiError(404, "not found"))
    status.want("one", {"ipam": "Cluster"})
    await asyncio.sleep(20)
    assert len(api.requests) == 1


async def test_a_group_deleted_after_a_failure_is_not_retried(api, status):
    api.answer("PATCH", path("one"), ApiError(500, "no"))
    status.want("one", {"ipam": "Cluster"})
    await asyncio.sleep(1)
    status.learn("one", None)
    await asyncio.sleep(20)
    assert len(api.requests) == 1


async def test_a_newer_status_replaces_a_failed_one(api, status):
    api.answer("PATCH", path("one"), ApiError(500, "no"), times=1)
    status.want("one", {"ipam": "old"})
    await asyncio.sleep(1)
    status.want("one", {"ipam": "new"})
    await asyncio.sleep(20)
    assert written(api) == [("one", {"ipam": "old"}), ("one", {"ipam": "new"})]


async def test_a_write_without_an_answer_ends_and_is_retried(api, status):
    api.hang("PATCH", path("one"))
    status.want("one", {"ipam": "Cluster"})
    await asyncio.sleep(11)
    api.resume("PATCH", path("one"))
    await asyncio.sleep(2)
    assert [request.outcome for request in api.requests] == ["refused", "answered"]


async def test_cancellation_at_each_await_leaves_no_request_under_way(api, registry):
    made = []

    async def write():
        metrics = AllocatorMetrics(CollectorRegistry())
        made.append(status := GroupStatus(api, metrics, namespace=NAMESPACE))
        status.learn("one", {})
        status.want("one", {"ipam": "Cluster"})
        async with asyncio.timeout(3):
            await status.run()

    try:
        async for interruption in cancel_at_each_await(write):
            assert api.under_way == 0, interruption
    except TimeoutError:
        pass
    assert len(made) > 3

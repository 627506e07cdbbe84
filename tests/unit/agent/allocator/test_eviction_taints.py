# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The task and a fake API server that keeps Nodes; the test sends what the watches would."""

from __future__ import annotations

import asyncio
from collections import deque
from itertools import pairwise

import pytest

from purelb.core.settings import EvictionLimit
from purelb_agent.allocator import eviction_taints
from purelb_agent.allocator.eviction_taints import EvictionTainter
from purelb_agent.kube.client import ApiError
from purelb_agent.kube.events import Events
from purelb_agent.kube.tables import node_table
from tests.support.agent.fake_api import FakeApi

SPOT = "cloudprovider.azure.microsoft.com/draining"
OURS = {"key": SPOT, "value": "spot-eviction", "effect": "NoSchedule"}
EVENTS = "/api/v1/namespaces/default/events"
PAUSE = eviction_taints._PAUSE  # noqa: SLF001 - the first pause before a retry


def merged(old, patch):
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    new = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            new.pop(name, None)
        else:
            new[name] = merged(new.get(name), value)
    return new


class ApiServer(FakeApi):
    """Keeps Nodes and events."""

    def __init__(self):
        super().__init__()
        self.nodes, self.news = {}, []
        # Statuses and messages for the next patches; without any they are applied.
        self.refusals = deque()
        self._version = 0
        self.answer("POST", EVENTS, self._create_event)

    def change(self, name, patch=None):
        """Change a Node as another client does."""
        if name not in self.nodes:
            self.answer("PATCH", f"/api/v1/nodes/{name}", self._patch)
        self._version += 1
        stored = self.nodes.get(name, {"metadata": {"name": name, "uid": f"{name}-uid"}})
        changed = merged(stored, patch or {})
        version = {"metadata": {"resourceVersion": str(self._version)}}
        self.nodes[name] = merged(changed, version)
        return self.nodes[name]

    def _patch(self, request):
        name, body = request.path.rpartition("/")[2], request.body
        if self.refusals:
            raise ApiError(*self.refusals.popleft())
        version = body["metadata"]["resourceVersion"]
        if version != self.nodes[name]["metadata"]["resourceVersion"]:
            raise ApiError(409, "modified")
        return self.change(name, body)

    def _create_event(self, request):
        self.news.append(request.body)
        return {}

    async def until(self, method, count):
        """Wait for so many requests, and for all that follows without a pause."""
        async with asyncio.timeout(10 * PAUSE):
            while len(self.sent(method)) < count:  # noqa: ASYNC110 - the agent sets no event
                await asyncio.sleep(PAUSE / 100)
        await asyncio.sleep(PAUSE / 10)
        assert len(self.sent(method)) == count, self.requests


@pytest.fixture
def api():
    return ApiServer()


@pytest.fixture
async def start(api):
    """Start the program's task; called again, it is one that was restarted."""
    running = []

    def begin(limit=9):
        events = Events(api, component="allocator", instance="a-1")

        def changed(names):
            task.nodes_changed(names)

        limited = EvictionLimit(limit, is_percent=False)
        task = EvictionTainter(api, events, node_table(changed), limited)
        running.append(asyncio.create_task(task.run()))
        running.append(asyncio.create_task(events.run()))
        return task

    yield begin
    for task in running:
        task.cancel()
    await asyncio.gather(*running, return_exceptions=True)


def preempt_event(node="n1", count=1, **about):
    return {
        "metadata": {"namespace": "default", "name": f"{node}.1", "uid": f"{node}-event"},
        "involvedObject": {"kind": "Node", "name": node, **about},
        "count": count,
    }


async def test_a_node_is_tainted_once_and_an_event_recorded(api, start):
    task, node = start(), api.change("n1")
    task.nodes.put(node)
    task.preemptions.put(preempt_event())
    await api.until("POST", 1)
    assert api.nodes["n1"]["spec"]["taints"] == [OURS]
    (news,) = api.news
    assert (news["type"], news["reason"]) == ("Normal", "NodeDraining")
    assert news["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Node",
        "name": "n1",
        "uid": "n1-uid",
    }
    assert f"remove the taint: kubectl taint node n1 {SPOT}-" in news["message"]
    # The watch is behind, then catches up; an operator takes the taint away.
    task.nodes.put({**node, "status": {"addresses": [{"address": "172.28.1.11"}]}})
    task.nodes.put(api.nodes["n1"])
    task.nodes.put(api.change("n1", {"spec": {"taints": None}}))
    await api.until("PATCH", 1)
    assert "taints" not in api.nodes["n1"]["spec"]


async def test_a_restarted_program_does_not_repeat_a_taint(api, start):
    first = start()
    first.nodes.put(api.change("n1"))
    first.preemptions.put(preempt_event())
    await api.until("PATCH", 1)
    second = start()
    second.nodes.put(api.change("n1", {"spec": {"taints": None}}))
    second.preemptions.put(preempt_event())
    await api.until("PATCH", 1)
    second.preemptions.put(preempt_event(count=2))
    await api.until("PATCH", 2)
    assert api.nodes["n1"]["spec"]["taints"] == [OURS]


async def test_an_existing_taint_is_marked_without_events(api, start):
    task = start()
    api.refusals.append((500, "no"))
    task.nodes.put(api.change("n1", {"spec": {"taints": [{"key": SPOT, "effect": "NoExecute"}]}}))
    task.preemptions.put(preempt_event())
    await api.until("PATCH", 2)
    assert api.nodes["n1"]["metadata"]["annotations"] == {"purelb.io/preempted-by": "n1-event@1"}
    assert api.news == []


async def test_a_conflict_is_retried_on_the_newer_node(api, start):
    task, stale = start(), api.change("n1")
    other = {"key": "other", "effect": "NoExecute"}
    newer = api.change("n1", {"spec": {"taints": [other]}})
    task.nodes.put(stale)
    task.preemptions.put(preempt_event())
    await api.until("PATCH", 1)
    task.nodes.put(newer)
    await api.until("POST", 1)
    assert api.nodes["n1"]["spec"]["taints"] == [other, OURS]
    assert [news["reason"] for news in api.news] == ["NodeDraining"]


async def test_a_refusal_is_reported_once_and_retried_with_growing_pauses(api, start):
    task = start()
    api.refusals.extend([(403, "you must not")] * 3)
    task.nodes.put(api.change("n1"))
    task.preemptions.put(preempt_event())
    await api.until("PATCH", 4)
    assert [news["reason"] for news in api.news] == ["NodeDrainingFailed", "NodeDraining"]
    assert api.news[0]["type"] == "Warning"
    assert "you must not" in api.news[0]["message"]
    pauses = [later.at - before.at for before, later in pairwise(api.sent("PATCH"))]
    assert pauses == pytest.approx([PAUSE, 2 * PAUSE, 4 * PAUSE])


async def test_a_refusal_of_the_next_occurrence_is_reported_too(api, start):
    task = start()
    api.refusals.extend([(403, "no"), (403, "no")])
    task.nodes.put(api.change("n1"))
    task.preemptions.put(preempt_event())
    await api.until("POST", 1)
    task.preemptions.put(preempt_event(count=2))
    await api.until("PATCH", 3)
    reasons = [news["reason"] for news in api.news]
    assert reasons == ["NodeDrainingFailed", "NodeDrainingFailed", "NodeDraining"]


@pytest.mark.parametrize("status", [403, 404])
async def test_a_deleted_node_is_not_retried(api, start, status):
    task, node = start(), api.change("n1")
    api.refusals.extend([(status, "no")] * 9)
    task.nodes.put(node)
    task.preemptions.put(preempt_event())
    await api.until("PATCH", 1)
    task.nodes.drop(node)
    await asyncio.sleep(2 * PAUSE)
    await api.until("PATCH", 1)


async def test_a_deleted_event_is_not_retried(api, start):
    task, event = start(), preempt_event()
    api.refusals.extend([(500, "no")] * 9)
    task.nodes.put(api.change("n1"))
    task.preemptions.put(event)
    await api.until("PATCH", 1)
    task.preemptions.drop(event)
    await asyncio.sleep(2 * PAUSE)
    await api.until("PATCH", 1)


async def test_no_taint_waits_for_an_event_to_be_written(api, start):
    task = start()
    api.hang("POST", EVENTS)
    for name in ("n1", "n2", "n3"):
        task.nodes.put(api.change(name))
    task.preemptions.replace([preempt_event(f"n{i}") for i in (1, 2, 3)], asked_at=0.0)
    await api.until("PATCH", 3)
    assert [node["spec"]["taints"] for node in api.nodes.values()] == [[OURS]] * 3
    assert api.news == []
    api.resume("POST", EVENTS)
    await api.until("POST", 3)
    assert [news["involvedObject"]["name"] for news in api.news] == ["n1", "n2", "n3"]


class TestLimit:
    NAMES = ("n1", "n2", "n3")

    async def announced(self, api, task):
        """Announce the evictions of all nodes; the watch brings no news of the taints yet."""
        for name in self.NAMES:
            task.nodes.put(api.change(name))
        task.preemptions.replace([preempt_event(name) for name in self.NAMES], asked_at=0.0)

    async def test_further_nodes_wait_and_say_so_once(self, api, start):
        task = start(limit=1)
        await self.announced(api, task)
        await api.until("POST", 3)
        assert {name for name in self.NAMES if "spec" in api.nodes[name]} == {"n1"}
        news = {(n["involvedObject"]["name"], n["reason"], n["type"]) for n in api.news}
        failed = {(name, "NodeDrainingFailed", "Warning") for name in ("n2", "n3")}
        assert news == {("n1", "NodeDraining", "Normal"), *failed}
        text = next(n["message"] for n in api.news if n["type"] == "Warning")
        assert "but 1 of 3 Nodes may have it at a time" in text
        # The watch brings the taint, and a heartbeat.
        task.nodes.put(api.nodes["n1"])
        task.nodes.put(api.change("n2"))
        await api.until("PATCH", 1)
        await api.until("POST", 3)

    @pytest.mark.parametrize("how", ["taint removed", "node deleted"])
    async def test_the_next_is_tainted_when_one_is_free_again(self, api, start, how):
        task = start(limit=1)
        await self.announced(api, task)
        await api.until("PATCH", 1)
        if how == "node deleted":
            task.nodes.drop(api.nodes["n1"])
        else:
            task.nodes.put(api.change("n1", {"spec": {"taints": None}}))
        await api.until("PATCH", 2)
        assert [name for name in self.NAMES if api.nodes[name].get("spec", {}).get("taints")][
            -1
        ] == "n2"

    async def test_one_that_waits_is_not_tainted_after_its_event_is_gone(self, api, start):
        task = start(limit=1)
        await self.announced(api, task)
        await api.until("PATCH", 1)
        task.preemptions.replace([], asked_at=1.0)
        task.nodes.put(api.change("n1", {"spec": {"taints": None}}))
        await api.until("PATCH", 1)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The model of the API server, as the programs' own client and watcher see it."""

from __future__ import annotations

import asyncio

import pytest

from purelb_agent.kube.client import ApiError, Kube
from purelb_agent.kube.watch import Watcher
from simulation.api.objects import Key, field_selector, merged
from simulation.api.server import ApiServer, Target, target_of
from simulation.api.transport import ModelAccess
from simulation.api.way import Way
from simulation.time.timeline import MICROSECONDS

HOUR = 3600 * MICROSECONDS
SERVICES = "/api/v1/services"
WEB = "/api/v1/namespaces/default/services/web"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases"


def service(name="web", kind="LoadBalancer", **more):
    return {"metadata": {"name": name, "namespace": "default", **more}, "spec": {"type": kind}}


class Sink:
    """Keeps the objects of a kind by name, and counts lists."""

    def __init__(self):
        self.objects, self.lists = {}, 0

    def replace(self, items, *, asked_at):
        self.objects = {item["metadata"]["name"]: item for item in items}
        self.lists += 1

    def put(self, item):
        self.objects[item["metadata"]["name"]] = item

    def drop(self, item):
        del self.objects[item["metadata"]["name"]]


class Client:
    """A program that does what a test says, and its server."""

    def __init__(self, timeline, process):
        self.timeline, self.process, self.server = timeline, process, ApiServer()
        self.delays = {"request": 0.005, "answer": 0.005, "event": 0.003}
        delays = {name: lambda name=name: self.delays[name] for name in self.delays}
        self.way = Way(timeline, **delays)
        self.kube = Kube(ModelAccess(self.server, process, self.way, user="agent/n1"))

    def do(self, *works, seconds=3600):
        """Run these one after the other; return their results, or raise their error."""
        results = []

        async def program():
            async with self.kube:
                for work in works:
                    results.append(await work)  # noqa: PERF401 - those before an error count

        self.process.start(program())
        self.timeline.run(self.timeline.now + int(seconds * MICROSECONDS))
        if self.process.error:
            raise self.process.error
        return results

    def put(self, body, kind=SERVICES):
        meta = body["metadata"]
        return self.server.objects.put(Key(kind, meta["namespace"], meta["name"]), body)


@pytest.fixture
def client(timeline, process):
    return Client(timeline, process)


class TestPaths:
    @pytest.mark.parametrize(
        ("path", "target"),
        [
            ("/api/v1/services", Target(SERVICES, "")),
            (WEB, Target(SERVICES, "default", "web")),
            (f"{WEB}/status", Target(SERVICES, "default", "web", "status")),
            ("/api/v1/nodes/n1", Target("/api/v1/nodes", "", "n1")),
            ("/api/v1/namespaces/x", Target("/api/v1/namespaces", "", "x")),
            (
                "/apis/purelb.io/v2/servicegroups",
                Target("/apis/purelb.io/v2/servicegroups", ""),
            ),
            (LEASES, Target("/apis/coordination.k8s.io/v1/leases", "purelb-system")),
        ],
    )
    def test_a_path_leads_to_a_kind_and_perhaps_an_object(self, path, target):
        assert target_of(path) == target


class TestSelectors:
    @pytest.mark.parametrize(
        ("selector", "is_taken"),
        [
            ("", True),
            ("spec.type=LoadBalancer", True),
            ("spec.type!=LoadBalancer", False),
            ("metadata.name=web,spec.type=LoadBalancer", True),
            ("metadata.name=web,spec.type=ClusterIP", False),
            ("spec.none.at.all=", True),
        ],
    )
    def test_all_requirements_must_hold(self, client, selector, is_taken):
        assert field_selector(selector)(client.put(service())) is is_taken


@pytest.mark.parametrize(
    ("target", "patch", "expected"),
    [
        ({"a": 1}, {"a": None}, {}),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": None, "d": 3}}, {"a": {"c": 2, "d": 3}}),
        ({"a": [1]}, {"a": [2]}, {"a": [2]}),
        ({"a": 1}, {"a": {"b": None, "c": 1}}, {"a": {"c": 1}}),
    ],
)
def test_a_merge_patch_is_that_of_rfc_7386(target, patch, expected):
    assert merged(target, patch) == expected


class TestRequests:
    def test_they_take_the_time_of_both_ways(self, client, timeline):
        client.process.on_end(lambda: seen.append(timeline.now))
        seen = []
        client.do(client.kube.request("GET", SERVICES))
        assert seen == [10_000]

    def test_a_new_object_gets_uid_and_version(self, client):
        (made, read) = client.do(
            client.kube.request("POST", "/api/v1/namespaces/default/services", service()),
            client.kube.request("GET", WEB),
        )
        assert made == read
        assert made["metadata"]["uid"]
        assert made["metadata"]["resourceVersion"] == "1"
        assert client.server.writes == {("agent/n1", SERVICES): 1}

    @pytest.mark.parametrize(
        ("method", "path", "body", "status"),
        [
            ("GET", f"{WEB}x", None, 404),
            ("POST", "/api/v1/namespaces/default/services", service(), 409),
            ("PUT", WEB, service(resourceVersion="9"), 409),
            ("PATCH", WEB, {"metadata": {"resourceVersion": "9"}}, 409),
            ("DELETE", WEB, {"preconditions": {"uid": "other"}}, 409),
            ("PATCH", f"{WEB}x", {}, 404),
        ],
    )
    def test_what_does_not_fit_is_refused(self, client, method, path, body, status):
        client.put(service(uid="u"))
        with pytest.raises(ApiError) as refused:
            client.do(client.kube.request(method, path, body))
        assert refused.value.status == status
        assert client.server.objects.version == 1

    def test_a_status_changes_status_and_annotations_alone(self, client):
        client.put(service(uid="u"))
        patch = {
            "metadata": {"annotations": {"a": "b"}},
            "spec": {"type": "ClusterIP"},
            "status": {"loadBalancer": {}},
        }
        (written,) = client.do(client.kube.request("PATCH", f"{WEB}/status", patch))
        assert written["spec"] == {"type": "LoadBalancer"}
        assert written["status"] == {"loadBalancer": {}}
        assert written["metadata"]["annotations"] == {"a": "b"}

    def test_a_write_that_changes_nothing_makes_no_version(self, client):
        client.put(service(uid="u"))
        client.do(client.kube.request("PATCH", WEB, {"spec": {"type": "LoadBalancer"}}))
        assert client.server.objects.version == 1
        assert client.server.writes == {}

    def test_a_policy_refuses_and_says_why(self, client):
        client.server.policies.append(lambda write: f"not for {write.user}")
        with pytest.raises(ApiError, match="not for agent/n1") as refused:
            client.do(client.kube.request("POST", "/api/v1/namespaces/default/services", service()))
        assert refused.value.status == 403

    def test_a_write_takes_effect_though_its_sender_has_given_up(self, client):
        client.put(service(uid="u"))
        client.delays["answer"] = 20.0
        with pytest.raises(ApiError, match="no answer within 2 s"):
            client.do(client.kube.request("PATCH", WEB, {"spec": {"n": 1}}, seconds=2.0))
        assert client.server.objects.version == 2


class TestWatches:
    def watching(self, client, path=SERVICES, **params):
        sink = Sink()
        return sink, Watcher(client.kube, path, sink, params=params)

    def run(self, client, *works, seconds):
        async def program():
            async with client.kube, asyncio.TaskGroup() as group:
                for work in works:
                    group.create_task(work)

        client.process.start(program())
        client.timeline.run(client.timeline.now + int(seconds * MICROSECONDS))

    def test_a_table_follows_every_change(self, client, timeline):
        sink, watcher = self.watching(client)
        client.put(service("old"))
        timeline.after(10, lambda: client.put(service()))
        timeline.after(20, lambda: client.put(service(labels={"a": "b"})))
        timeline.after(30, lambda: client.server.objects.drop(Key(SERVICES, "default", "old")))
        self.run(client, watcher.run(), seconds=40)
        assert list(sink.objects) == ["web"]
        assert sink.objects["web"]["metadata"]["labels"] == {"a": "b"}
        assert sink.lists == 1

    def test_what_a_selector_takes_no_more_is_deleted(self, client, timeline):
        sink, watcher = self.watching(client, fieldSelector="spec.type=LoadBalancer")
        client.put(service())
        timeline.after(10, lambda: client.put(service(kind="ClusterIP")))
        self.run(client, watcher.run(), seconds=5)
        assert list(sink.objects) == ["web"]
        timeline.run(20 * MICROSECONDS)
        assert sink.objects == {}

    def test_a_namespace_shows_its_own(self, client):
        sink, watcher = self.watching(client, "/api/v1/namespaces/other/services")
        client.put(service())
        self.run(client, watcher.run(), seconds=5)
        assert sink.objects == {}

    def test_no_event_overtakes_another(self, client, timeline):
        sink, watcher = self.watching(client)
        slow = iter([0.003, 0.5, 0.001, 0.001])

        def change(number):
            client.delays["event"] = next(slow)
            client.put(service(labels={"n": number}))

        for number in range(3):
            timeline.after(10 + number / 1000, lambda number=number: change(number))
        self.run(client, watcher.run(), seconds=20)
        assert sink.objects["web"]["metadata"]["labels"] == {"n": 2}

    def test_the_server_ends_it_and_nothing_is_listed_again(self, client, timeline):
        sink, watcher = self.watching(client)
        timeline.after(1000, lambda: client.put(service()))
        self.run(client, watcher.run(), seconds=2000)
        assert list(sink.objects) == ["web"]
        assert sink.lists == 1

    def test_after_a_compaction_it_lists_again_unless_a_bookmark_came(self, client, timeline):
        sink, watcher = self.watching(client)

        def forget():
            client.put(service("other"), kind="/api/v1/nodes")
            client.server.compact()

        timeline.after(100, forget)
        self.run(client, watcher.run(), seconds=1000)
        assert sink.lists == 2
        timeline.after(100, forget)
        timeline.after(101, client.server.send_bookmarks)
        timeline.run(timeline.now + 1000 * MICROSECONDS)
        assert sink.lists == 2

    def test_a_client_that_is_gone_is_forgotten(self, client, timeline):
        _sink, watcher = self.watching(client)

        async def program():
            async with client.kube:
                task = asyncio.create_task(watcher.run())
                await asyncio.sleep(5)
                task.cancel()
                # One that is cancelled before its request arrives.
                other = asyncio.create_task(watcher.run())
                await asyncio.sleep(0.001)
                other.cancel()

        client.process.start(program())
        timeline.run(HOUR)
        assert client.process.error is None
        assert client.server.watch_count == 0

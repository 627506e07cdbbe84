# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Lists in pages, and a store that is put back as it was."""

from __future__ import annotations

import pytest

from purelb_agent.kube import watch
from purelb_agent.kube.client import ApiError
from purelb_agent.kube.watch import Watcher
from simulation.api.objects import Key
from simulation.api.way import Reach
from simulation.time.timeline import MICROSECONDS
from tests.unit.simulation.test_api import SERVICES, Client, Sink, service


@pytest.fixture
def client(timeline, process):
    return Client(timeline, process)


class TestPages:
    def page(self, client, **params):
        return client.kube.request("GET", SERVICES, params={"limit": "2", **params})

    def names(self, page):
        return [item["metadata"]["name"] for item in page["items"]]

    def two_pages(self, client, between):
        """Return two pages, with something between them."""

        async def listed():
            first = await self.page(client)
            between()
            return first, await self.page(client, **{"continue": first["metadata"]["continue"]})

        ((first, second),) = client.do(listed())
        return first, second

    def test_a_list_without_a_limit_is_whole(self, client):
        for name in "abc":
            client.put(service(name))
        (listed,) = client.do(client.kube.request("GET", SERVICES))
        assert self.names(listed) == ["a", "b", "c"]
        assert "continue" not in listed["metadata"]

    def test_the_pages_show_one_moment(self, client):
        for name in "abcde":
            client.put(service(name))
        objects = client.server.objects

        def change():
            client.put(service("c", labels={"is": "new"}))
            client.put(service("cc"))
            objects.drop(Key(SERVICES, "default", "d"))
            client.put(service("other"), kind="/api/v1/nodes")

        first, second = self.two_pages(client, change)
        assert (self.names(first), self.names(second)) == (["a", "b"], ["c", "d"])
        assert "labels" not in second["items"][0]["metadata"]
        versions = {page["metadata"]["resourceVersion"] for page in (first, second)}
        assert versions == {"5"}
        assert second["metadata"]["continue"] != first["metadata"]["continue"]

    def test_the_last_page_has_no_next_one(self, client):
        for name in "abc":
            client.put(service(name))
        _first, second = self.two_pages(client, lambda: None)
        assert self.names(second) == ["c"]
        assert "continue" not in second["metadata"]

    def test_a_page_of_forgotten_changes_is_gone(self, client):
        for name in "abc":
            client.put(service(name))

        def forget():
            client.put(service("d"))
            client.server.compact()

        with pytest.raises(ApiError) as refused:
            self.two_pages(client, forget)
        assert refused.value.status == 410

    def test_a_watcher_lists_more_than_500(self, client, timeline):
        sink = Sink()
        for number in range(1201):
            client.put(service(f"s{number:04}"))
        timeline.after(0.015, lambda: client.put(service("s1200", labels={"is": "new"})))
        client.do(Watcher(client.kube, SERVICES, sink).run(), seconds=10)
        assert len(sink.objects) == 1201
        assert sink.lists == 1
        assert sink.objects["s1200"]["metadata"]["labels"] == {"is": "new"}


class TestRestore:
    def test_older_objects_come_back_with_an_older_version(self, client):
        objects = client.server.objects
        client.put(service(uid=objects.next_uid()))
        backup = client.server.backup()
        client.put(service(labels={"is": "new"}))
        client.put(service("late"))
        client.server.restore(backup)
        assert objects.version == 1
        assert [stored.key.name for stored in objects.of_kind(SERVICES, "")] == ["web"]
        assert "labels" not in objects.find(Key(SERVICES, "default", "web")).body["metadata"]
        assert objects.next_uid() == "uid-2"
        client.put(service("other"))
        client.server.restore(backup)
        assert objects.version == 1

    def test_a_watch_ends_and_one_of_the_future_hears_only_of_later_versions(
        self, client, timeline, caplog, monkeypatch
    ):
        # As a client does that takes any end of a watch for an ordinary one.
        monkeypatch.setattr(watch, "_END_EARLY", 1000.0)
        sink, server = Sink(), client.server
        client.put(service())
        backup = server.backup()
        for number in range(5):
            client.put(service(labels={"n": number}))
        timeline.after(10, lambda: server.restore(backup))
        timeline.after(20, lambda: client.put(service("early")))
        timeline.after(21, server.send_bookmarks)
        for moment in range(30, 35):
            timeline.after(moment, lambda m=moment: client.put(service(labels={"n": m})))
        client.do(Watcher(client.kube, SERVICES, sink).run(), seconds=15)
        assert server.watch_count == 1
        timeline.run(29 * MICROSECONDS)
        assert sink.objects["web"]["metadata"]["labels"] == {"n": 4}
        timeline.run(40 * MICROSECONDS)
        assert list(sink.objects) == ["web"]
        assert sink.objects["web"]["metadata"]["labels"] == {"n": 34}
        assert sink.lists == 1
        assert "watchFailed" not in caplog.messages

    def test_a_watch_of_an_earlier_version_is_gone(self, client, timeline):
        sink = Sink()
        client.put(service())
        client.process.freeze()
        client.do(Watcher(client.kube, SERVICES, sink).run(), seconds=1)
        client.process.thaw()
        timeline.run(2 * MICROSECONDS)
        client.put(service(labels={"is": "new"}))
        client.way.set_reach(Reach.REFUSED)
        client.put(service("late"))
        client.server.restore(client.server.backup())
        client.way.set_reach(Reach.WHOLE)
        timeline.run(5 * MICROSECONDS)
        assert sorted(sink.objects) == ["late", "web"]
        assert sink.lists == 2

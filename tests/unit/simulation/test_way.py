# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What programs notice of a way to the API server that is broken or slow."""

from __future__ import annotations

import asyncio

import pytest

from purelb_agent.kube.client import ApiError
from purelb_agent.kube.watch import Watcher
from simulation.api.way import Reach
from simulation.time.timeline import MICROSECONDS
from tests.unit.simulation.test_api import SERVICES, WEB, Client, Sink, service

PATCH = {"spec": {"n": 1}}


@pytest.fixture
def client(timeline, process):
    made = Client(timeline, process)
    made.put(service(uid="u"))
    return made


def seconds(client):
    return client.timeline.now / MICROSECONDS


def attempt(client, *, timeout=4.0):
    """Write a Service; return when the client knew the outcome, and its error."""

    async def write():
        try:
            await client.kube.request("PATCH", WEB, PATCH, seconds=timeout)
        except ApiError as error:
            return seconds(client), str(error).partition(": ")[2]
        return seconds(client), ""

    (result,) = client.do(write(), seconds=30)
    return result


def is_written(client):
    return client.server.objects.version == 2


class TestRequests:
    def test_refused_ones_fail_as_soon_as_the_server_can_say_so(self, client):
        client.way.set_reach(Reach.REFUSED)
        assert attempt(client) == (0.005, "connection refused")
        assert not is_written(client)

    def test_a_pending_one_breaks_when_connections_are_refused(self, client, timeline):
        client.delays["answer"] = 1.0
        timeline.after(0.5, lambda: client.way.set_reach(Reach.REFUSED))
        assert attempt(client) == (0.5, "connection reset")
        assert is_written(client)

    @pytest.mark.parametrize("reach", [Reach.DROPPED, Reach.STOPPED])
    def test_lost_ones_end_by_their_own_time_limit(self, client, reach):
        client.way.set_reach(reach)
        assert attempt(client) == (4.0, "no answer within 4 s")
        assert not is_written(client)

    def test_the_kernel_gives_up_before_a_longer_limit(self, client):
        client.way.set_reach(Reach.DROPPED)
        assert attempt(client, timeout=20.0) == (10.0, "no acknowledgement")

    @pytest.mark.parametrize("reach", [Reach.DROPPED, Reach.STOPPED])
    def test_what_was_sent_arrives_when_the_way_heals_in_time(self, client, timeline, reach):
        client.way.set_reach(reach)
        timeline.after(8, lambda: client.way.set_reach(Reach.WHOLE))
        assert attempt(client, timeout=20.0) == (8.005, "")
        assert is_written(client)

    def test_also_if_its_sender_has_given_up(self, client, timeline):
        client.way.set_reach(Reach.DROPPED)
        timeline.after(8, lambda: client.way.set_reach(Reach.WHOLE))
        assert attempt(client) == (4.0, "no answer within 4 s")
        assert is_written(client)

    @pytest.mark.parametrize(
        ("slow", "written_at"), [((1.5, 0.0), 1.505), ((0.0, 1.5), 0.005)], ids=["before", "after"]
    )
    def test_a_slow_write_takes_effect_before_or_after_its_time(
        self, client, timeline, slow, written_at
    ):
        client.way.slow = lambda method, _kind: slow if method == "PATCH" else (0.0, 0.0)
        seen = []
        client.server.policies.append(lambda _write: seen.append(seconds(client)) or "")
        assert attempt(client) == (1.51, "")
        assert seen == [written_at]


class TestRefusals:
    @pytest.mark.parametrize(
        ("status", "text"),
        [
            (401, "Unauthorized"),
            (429, "HTTP 429: Too many requests, please try again later.\n"),
            (500, "Internal error occurred: etcdserver: no leader"),
            (503, "the server is currently unable to handle the request"),
        ],
    )
    def test_the_server_answers_and_does_nothing(self, client, status, text):
        client.way.refuses = lambda method, kind: status * ((method, kind) == ("PATCH", SERVICES))
        assert attempt(client) == (0.01, text)
        assert not is_written(client)

    def test_a_watch_that_is_open_continues_and_no_other_is_begun(self, client, timeline, caplog):
        first, second = Sink(), Sink()

        async def program():
            async with client.kube, asyncio.TaskGroup() as group:
                group.create_task(Watcher(client.kube, SERVICES, first).run())
                await asyncio.sleep(0.015)
                client.way.refuses = lambda _method, _kind: 401
                await asyncio.sleep(5)
                group.create_task(Watcher(client.kube, SERVICES, second).run())

        client.process.start(program())
        timeline.after(10, lambda: client.put(service("late")))
        timeline.run(20 * MICROSECONDS)
        assert sorted(first.objects) == ["late", "web"]
        assert second.lists == 0
        assert caplog.messages == ["watchFailed"]
        client.way.refuses = lambda _method, _kind: 0
        timeline.run(22 * MICROSECONDS)
        assert sorted(second.objects) == ["late", "web"]


class TestWatches:
    def watch(self, client, timeline, faults, changes):
        """Run a watcher; return the labels that it has seen at each second."""
        sink, seen = Sink(), {}

        async def program():
            async with client.kube:
                await Watcher(client.kube, SERVICES, sink).run()

        for moment, fault in faults.items():
            timeline.after(moment, fault)
        for moment in changes:
            body = service(uid="u", labels={"at": moment})
            timeline.after(moment, lambda body=body: client.put(body))
        client.process.start(program())
        for second in range(1, 60):
            timeline.run(second * MICROSECONDS)
            seen[second] = sink.objects["web"]["metadata"].get("labels", {}).get("at")
        return seen, sink.lists

    def test_a_stalled_one_brings_everything_late(self, client, timeline):
        faults = {5: lambda: client.way.stall(SERVICES), 30: client.way.resume}
        seen, lists = self.watch(client, timeline, faults, (10, 20))
        assert (seen[29], seen[31], lists) == (None, 20, 1)

    def test_one_that_is_silent_stays_so_and_a_new_one_is_not(self, client, timeline):
        faults = {
            5: lambda: client.way.silence(SERVICES),
            30: lambda: client.way.set_reach(Reach.REFUSED),
            31: lambda: client.way.set_reach(Reach.WHOLE),
        }
        seen, lists = self.watch(client, timeline, faults, (10, 40))
        assert (seen[29], seen[33], seen[41], lists) == (None, 10, 40, 1)

    def test_a_server_that_is_behind_brings_everything_late_until_another_one_does(
        self, client, timeline
    ):
        def other_server():
            client.way.lag = float
            client.way.reset()

        client.way.lag = lambda: 3.0
        seen, lists = self.watch(client, timeline, {30: other_server}, (10, 40))
        assert (seen[12], seen[14], seen[41]) == (None, 10, 40)
        assert lists == 1

    @pytest.mark.parametrize(("forgets", "listed"), [(True, 2), (False, 1)])
    def test_a_server_that_has_forgotten_is_asked_for_all(self, client, timeline, forgets, listed):
        faults = {
            5: lambda: client.way.set_reach(Reach.REFUSED),
            7: client.server.compact if forgets else bool,
            8: lambda: client.way.set_reach(Reach.WHOLE),
        }
        seen, lists = self.watch(client, timeline, faults, (6,))
        assert (seen[7], seen[10], lists) == (None, 6, listed)

    # One that breaks for so long lists again.
    @pytest.mark.parametrize(
        ("reach", "knows_at", "listed"),
        [(Reach.REFUSED, 32, 2), (Reach.DROPPED, 32, 2), (Reach.STOPPED, 31, 1)],
    )
    def test_one_that_is_cut_off_finds_what_it_has_missed(
        self, client, timeline, reach, knows_at, listed
    ):
        faults = {
            5: lambda: client.way.set_reach(reach),
            30: lambda: client.way.set_reach(Reach.WHOLE),
        }
        seen, lists = self.watch(client, timeline, faults, (10,))
        assert seen[29] is None
        assert seen[knows_at] == 10
        assert lists == listed

    def test_a_stopped_server_hangs_it_without_an_error(self, client, timeline, caplog):
        faults = {5: lambda: client.way.set_reach(Reach.STOPPED)}
        seen, _lists = self.watch(client, timeline, faults, (10,))
        assert seen[59] is None
        assert "watchFailed" not in caplog.messages

    def test_a_short_cut_is_not_noticed(self, client, timeline, caplog):
        faults = {
            9: lambda: client.way.set_reach(Reach.DROPPED),
            15: lambda: client.way.set_reach(Reach.WHOLE),
        }
        seen, _lists = self.watch(client, timeline, faults, (10,))
        assert (seen[14], seen[16]) == (None, 10)
        assert "watchFailed" not in caplog.messages


def test_a_dead_program_is_forgotten(client, timeline):
    async def program():
        async with client.kube, asyncio.TaskGroup() as group:
            group.create_task(Watcher(client.kube, SERVICES, Sink()).run())

    client.process.start(program())
    timeline.run(MICROSECONDS)
    assert client.server.watch_count == 1
    client.process.kill()
    client.way.abandon()
    assert client.server.watch_count == 0

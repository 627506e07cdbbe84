# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Annotations and events that the reporter writes, against a fake API."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise

import pytest

from purelb.core.election.claims import claimed
from purelb.core.election.draining import NodeMarks
from purelb.core.election.members import Standing
from purelb.core.holding.counted_lease import Check
from purelb.core.holding.deadline import HoldDeadline
from purelb.core.model import Announcement
from purelb.core.names import ANNOUNCING_ANNOTATIONS, DRAINING_TAINTS
from purelb.core.node.configuration import NodeConfig, SelectedConfig, SelectorState
from purelb.core.node.conflicts import DuplicateAddress
from purelb.core.node.decisions import decide_vips
from purelb_agent.kube.client import ApiError
from purelb_agent.kube.store import NodeStore
from purelb_agent.node.reporter import Reporter
from purelb_agent.runtime import clock
from tests.support.agent.cancellation import cancel_at_each_await
from tests.support.agent.fake_api import FakeApi
from tests.support.agent.kubernetes_objects import lease_object
from tests.support.agent.recorded_events import RecordedEvents
from tests.support.core.snapshots import (
    DUMMY,
    ETH0,
    NOW,
    REMOTE_GROUP,
    VIP4,
    VIP6,
    service,
    snapshot,
)

PATH = "/api/v1/namespaces/default/services/web"
WEB = service(version="7", uid="uid-web")
BOTH = {(ETH0.index, VIP4), (ETH0.index, VIP6)}
V4, V6 = ANNOUNCING_ANNOTATIONS[4], ANNOUNCING_ANNOTATIONS[6]
FAMILIES = pytest.mark.parametrize(
    ("vip", "annotation"), [(VIP4, V4), (VIP6, V6)], ids=["v4", "v6"]
)


@pytest.fixture
def api():
    made = FakeApi()
    made.answer("PATCH", PATH, {})
    return made


@pytest.fixture
def store():
    made = NodeStore("n1", classes=claimed(unclassed=True), drains=True)
    made.services.records[WEB.key] = WEB
    return made


@pytest.fixture
def events():
    return RecordedEvents()


@pytest.fixture
def reporter(api, store, events):
    return Reporter(api, store, events, "n1")


@pytest.fixture
async def running(reporter):
    task = asyncio.create_task(reporter.run())
    yield reporter
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


def decided(*services, **more):
    return decide_vips(snapshot(*(services or (WEB,)), **more))


def written(api):
    """The annotations of each PATCH."""
    return [request.body["metadata"]["annotations"] for request in api.sent("PATCH")]


def entry(vip, *, node="n1", interface="eth0"):
    return Announcement(node, interface, vip)


def announcing(*entries):
    """The Service with these entries in its annotations."""
    current = {v: tuple(e for e in entries if e.address.version == v) for v in (4, 6)}
    return replace(WEB, announcing=current)


class TestAnnotations:
    async def test_held_addresses_are_written_with_node_and_interface(self, running, api):
        running.report(decided(), frozenset(BOTH), done=True)
        await asyncio.sleep(1)
        assert written(api) == [{V4: f"n1,eth0,{VIP4}", V6: f"n1,eth0,{VIP6}"}]

    async def test_a_write_names_the_version_of_the_service_that_it_changes(self, running, api):
        running.report(decided(), frozenset(BOTH), done=True)
        await asyncio.sleep(1)
        assert api.sent("PATCH")[0].body["metadata"]["resourceVersion"] == "7"

    async def test_nothing_is_written_before_the_first_report(self, running, api):
        running._wakeup.notify()  # noqa: SLF001 - news without a result
        await asyncio.sleep(60)
        assert api.requests == []

    @FAMILIES
    async def test_an_address_that_is_not_held_is_not_written(self, running, api, vip, annotation):
        running.report(decided(), frozenset({(ETH0.index, vip)}), done=False)
        await asyncio.sleep(1)
        assert written(api) == [{annotation: f"n1,eth0,{vip}"}]

    async def test_an_annotation_that_is_correct_is_not_written_again(self, running, api, store):
        store.services.records[WEB.key] = announcing(entry(VIP4), entry(VIP6))
        running.report(decided(), frozenset(BOTH), done=True)
        await asyncio.sleep(60)
        assert api.requests == []

    async def test_the_same_result_is_handled_once(self, running, api):
        made = decided()
        for _cycle in range(3):
            running.report(made, frozenset(BOTH), done=True)
            await asyncio.sleep(1)
        assert len(api.requests) == 1

    @FAMILIES
    async def test_a_withdrawn_address_loses_its_annotation(
        self, running, api, store, vip, annotation
    ):
        store.services.records[WEB.key] = announcing(entry(vip))
        running.report(decided(members=["n2"]), frozenset(), done=True)
        await asyncio.sleep(1)
        assert written(api) == [{annotation: None}]

    async def test_a_new_winner_replaces_the_entry_of_a_live_node(self, running, api, store):
        store.services.records[WEB.key] = announcing(entry(VIP4, node="n2"))
        running.report(decided(), frozenset({(ETH0.index, VIP4)}), done=True)
        await asyncio.sleep(1)
        assert written(api) == [{V4: f"n1,eth0,{VIP4}"}]

    async def test_entries_of_live_nodes_stay_for_an_address_on_every_node(
        self, running, api, store
    ):
        remote = announcing(entry(VIP4, node="n2", interface="kube-lb0"))
        store.services.records[WEB.key] = remote
        groups = (REMOTE_GROUP,)
        decisions = decided(remote, members=["n1", "n2"], dummy=DUMMY, groups=groups)
        running.report(decisions, frozenset({(DUMMY.index, VIP4)}), done=True)
        await asyncio.sleep(1)
        both = f"n1,{DUMMY.name},{VIP4} n2,{DUMMY.name},{VIP4}"
        assert written(api) == [{V4: both}]

    @pytest.mark.parametrize("had", [True, False], ids=["written before", "not written"])
    async def test_a_node_that_is_not_live_has_none(self, running, api, store, had):
        """It announces addresses that all nodes have, and the others remove what it writes."""
        others = entry(VIP4, node="n2", interface="kube-lb0")
        own = [entry(VIP4, interface="kube-lb0")] if had else []
        remote = store.services.records[WEB.key] = announcing(*own, others)
        decisions = decided(
            remote, members=["n2"], dummy=DUMMY, groups=(REMOTE_GROUP,), hold_deadline=None
        )
        running.report(decisions, frozenset({(DUMMY.index, VIP4)}), done=True)
        await asyncio.sleep(1)
        assert written(api) == ([{V4: str(others)}] if had else [])


class TestWhoHoldsByAgreement:
    """No node seems able to renew its Lease, so this one does not know who else is live."""

    AGREED = HoldDeadline(NOW + 11, NOW + 14, is_agreed=True)

    @FAMILIES
    @pytest.mark.parametrize("had", [True, False], ids=["written before", "not written"])
    async def test_it_removes_no_entry_of_others_and_adds_none(
        self, running, api, store, vip, annotation, had
    ):
        own = [entry(vip)] if had else []
        store.services.records[WEB.key] = announcing(*own, entry(vip, node="n2"))
        decisions = decided(members=["n1"], hold_deadline=self.AGREED)
        running.report(decisions, frozenset({(ETH0.index, vip)}), done=True)
        await asyncio.sleep(1)
        assert api.requests == []

    async def test_it_removes_its_own_if_it_has_withdrawn(self, running, api, store):
        theirs = entry(VIP4, node="n2")
        store.services.records[WEB.key] = announcing(entry(VIP4), theirs)
        running.report(decided(hold_deadline=self.AGREED), frozenset(), done=True)
        await asyncio.sleep(1)
        assert written(api) == [{V4: str(theirs)}]


class TestUndone:
    async def test_entries_that_are_taken_away_each_time_are_written_less_and_less_often(
        self, running, api
    ):
        # The Service in the store stays as it is.
        running.report(decided(), frozenset(BOTH), done=True)
        began = clock.now()
        while clock.now() < began + 40:
            await asyncio.sleep(0.1)
            running.report(decided(), frozenset(BOTH), done=True)
        pauses = [later.at - first.at for first, later in pairwise(api.requests)]
        assert pauses == pytest.approx([0.1, 1, 2, 4, 8, 10, 10], abs=0.2)

    async def test_other_entries_are_written_at_once(self, running, api):
        for _time in range(3):
            running.report(decided(), frozenset(BOTH), done=True)
            await asyncio.sleep(0.1)
        assert len(api.requests) == 2
        running.report(decided(), frozenset({(ETH0.index, VIP4)}), done=True)
        await asyncio.sleep(0.1)
        assert written(api)[-1] == {V4: f"n1,eth0,{VIP4}"}


class TestEntriesOfDeadNodes:
    @FAMILIES
    async def test_the_first_live_node_by_name_removes_them(
        self, running, api, store, vip, annotation
    ):
        store.services.records[WEB.key] = announcing(entry(vip, node="dead"))
        running.report(decided(members=["n1", "n2"]), frozenset(), done=True)
        await asyncio.sleep(1)
        assert written(api) == [{annotation: None}]

    @pytest.mark.parametrize(
        "more",
        [{"members": ["a", "n1"]}, {"hold_deadline": None}, {"members": []}],
        ids=["not the first", "no deadline", "no live node"],
    )
    async def test_any_other_node_leaves_them(self, running, api, store, more):
        store.services.records[WEB.key] = announcing(entry(VIP4, node="dead"))
        running.report(decided(**more), frozenset(), done=True)
        await asyncio.sleep(60)
        assert api.requests == []


class TestFailures:
    @pytest.mark.parametrize("status", [409, 404])
    async def test_a_service_that_changed_or_is_gone_is_retried_without_a_warning(
        self, running, api, status, caplog
    ):
        api.answer("PATCH", PATH, ApiError(status, "no"), times=1)
        running.report(decided(), frozenset(BOTH), done=True)
        await asyncio.sleep(10)
        assert [r.outcome for r in api.sent("PATCH")] == ["refused", "answered"]
        assert caplog.messages == []

    @pytest.mark.parametrize("status", [0, 403, 500])
    async def test_a_refused_write_is_retried_every_second_and_logged_once(
        self, running, api, status, caplog
    ):
        api.answer("PATCH", PATH, ApiError(status, "no"), times=3)
        running.report(decided(), frozenset(BOTH), done=True)
        await asyncio.sleep(10)
        began, *retries = [request.at for request in api.sent("PATCH")]
        assert [moment - began for moment in retries] == [1.0, 2.0, 3.0]
        assert caplog.messages == ["annotationFailed"]

    async def test_a_new_failure_after_a_success_is_logged_again(self, running, api, caplog):
        for members in (["n1"], ["n1", "n2"]):
            api.answer("PATCH", PATH, ApiError(500, "no"), times=1)
            running.report(decided(members=members), frozenset(BOTH), done=True)
            await asyncio.sleep(10)
        assert caplog.messages == ["annotationFailed"] * 2

    async def test_one_refused_service_does_not_keep_others_from_being_written(
        self, running, api, store
    ):
        shop = service("shop", version="3")
        store.services.records[shop.key] = shop
        other = PATH.replace("web", "shop")
        api.answer("PATCH", other, {})
        api.answer("PATCH", PATH, ApiError(500, "no"))
        running.report(decided(WEB, shop), frozenset(BOTH), done=True)
        await asyncio.sleep(0.5)
        assert [r.outcome for r in api.sent("PATCH", other)] == ["answered"]

    async def test_a_write_that_hangs_is_followed_by_one_of_the_latest_state(self, running, api):
        api.hang("PATCH", PATH)
        running.report(decided(), frozenset(BOTH), done=True)
        await asyncio.sleep(1)
        running.report(decided(), frozenset({(ETH0.index, VIP6)}), done=True)
        await asyncio.sleep(5)
        assert len(api.requests) == 1
        api.resume("PATCH", PATH)
        await asyncio.sleep(1)
        assert written(api)[1] == {V6: f"n1,eth0,{VIP6}"}

    async def test_cancellation_leaves_no_request_and_the_next_run_writes_all(self, store, events):
        apis = []

        async def write_once():
            api = FakeApi()
            apis.append(api)
            api.answer("PATCH", PATH, {})
            reporter = Reporter(api, store, events, "n1")
            reporter.report(decided(), frozenset(BOTH), done=True)
            with suppress(TimeoutError):
                async with asyncio.timeout(3):
                    await reporter.run()

        async for interruption in cancel_at_each_await(write_once):
            assert apis[-1].under_way == 0, interruption
        assert len(apis) > 2
        assert written(apis[-1]) == [{V4: f"n1,eth0,{VIP4}", V6: f"n1,eth0,{VIP6}"}]


class TestEvents:
    async def test_a_gained_and_a_lost_address_are_reported_to_the_service(self, running, events):
        running.report(decided(), frozenset({(ETH0.index, VIP4)}), done=True)
        await asyncio.sleep(1)
        running.report(decided(members=["n2"]), frozenset(), done=True)
        await asyncio.sleep(1)
        assert events.reasons == ["AnnouncingLocal", "Withdrawn"]

    async def test_a_taint_and_its_end_are_reported_from_what_was_acted_on(self, running, events):
        taint = DRAINING_TAINTS[0]
        for made, done in [
            (decided(), True),
            (decided(taint=taint, standing=Standing.DRAINED), False),
            (decided(taint=taint, standing=Standing.DRAINED), True),
            (decided(), True),
        ]:
            running.report(made, frozenset(), done=done)
            await asyncio.sleep(1)
        assert events.reasons == ["AddressesNotDrained", "AddressesDrained", "AddressesRestored"]

    async def test_the_cleanup_node_speaks_for_a_tainted_node_without_an_agent(
        self, running, store, events
    ):
        made = decided(members=["n1", "n2"])
        store.leases.put(lease_object("n2"))
        running.report(made, frozenset(), done=True)
        await asyncio.sleep(60)
        counting = store.leases.counting
        store.leases.change(counting.found("n2", Check.READ, asked_at=clock.now()))
        store.marked = {"n2": NodeMarks("uid-n2", DRAINING_TAINTS[0])}
        running.report(made, frozenset(), done=True)
        await asyncio.sleep(1)
        assert events.reasons == ["AddressesDrained"]
        assert events.records[0].about.name == "n2"

    async def test_an_unserved_address_is_reported_after_five_seconds_without_other_news(
        self, running, events
    ):
        running.report(decided(known=frozenset({VIP4, VIP6})), frozenset(), done=True)
        await asyncio.sleep(4.9)
        assert events.reasons == []
        await asyncio.sleep(0.2)
        assert events.reasons == ["NoEligibleNodes"] * 2

    def test_an_invalid_configuration_is_reported(self, reporter, events):
        config = NodeConfig("bad", "purelb-system", problem="spec.local.localInterface: no")
        reporter.report_choice(SelectedConfig(SelectorState.INVALID, config))
        text = "Node n1 is announcing nothing: spec.local.localInterface: no"
        assert events.take() == [("InvalidConfiguration", text)]

    def test_an_expression_that_selects_too_much_is_reported_once(self, reporter, events):
        config = NodeConfig("lan", "purelb-system", local_interface="eth0")
        choice = SelectedConfig(SelectorState.CONFIGURED, config)
        reporter.report_selected(choice, ())
        assert events.records == []
        for more in range(9):
            pods = [f"veth0{n}" for n in range(more)]
            reporter.report_selected(choice, ("eth0", "eth0.100", *pods))
        text = (
            "Node n1 uses eth0, eth0.100: 'eth0' matches anywhere in a name. Begin it with ^ and "
            "end it with $ to match whole names"
        )
        assert events.take() == [("AmbiguousInterface", text)]
        other = SelectedConfig(SelectorState.CONFIGURED, NodeConfig(local_interface="eth"))
        reporter.report_selected(other, tuple(f"veth{n}" for n in range(7)))
        ((_reason, text),) = events.take()
        assert text.startswith("Node n1 uses veth0, veth1, veth2, veth3, veth4, …: 'eth' ")

    @pytest.mark.parametrize("state", [SelectorState.DEFAULT, SelectorState.CONFIGURED])
    def test_a_valid_configuration_is_not_reported(self, reporter, events, state):
        reporter.report_choice(SelectedConfig(state, NodeConfig()))
        reporter.report_choice(SelectedConfig(SelectorState.DESELECTED, None))
        assert events.records == []

    @FAMILIES
    def test_a_duplicate_address_is_reported(self, reporter, events, vip, annotation):
        conflict = DuplicateAddress(vip, ETH0.index, b"\x02\0\0\0\0\x63")
        reporter.report_conflict(conflict)
        assert events.records == []  # before the first decisions
        reporter.report(decided(), frozenset(BOTH), done=True)
        reporter.report_conflict(conflict)
        assert events.reasons == ["AddressConflict"]
        assert "02:00:00:00:00:63 answers for it on eth0" in events.records[0].message

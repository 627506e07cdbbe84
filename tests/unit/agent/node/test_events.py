# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Events about the decisions of a node, without the task that sends them."""

from __future__ import annotations

import pytest

from purelb.core.election.claims import claimed
from purelb.core.election.draining import NodeMarks
from purelb.core.holding.counted_lease import Check
from purelb.core.holding.counting import Counting
from purelb.core.model import Lease
from purelb.core.names import DRAINING_TAINTS
from purelb.core.node.conflicts import DuplicateAddress
from purelb.core.node.decisions import decide_vips
from purelb_agent.kube.store import NodeStore
from purelb_agent.node.events import NodeEvents
from tests.support.agent.recorded_events import RecordedEvents
from tests.support.core.snapshots import (
    DUMMY,
    ETH0,
    REMOTE_GROUP,
    VIP4,
    VIP6,
    on_eth0,
    service,
    snapshot,
)

WEB = service(uid="uid-web")
GRACE = 5.0
EACH_VIP = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])


@pytest.fixture
def events():
    return RecordedEvents()


@pytest.fixture
def store():
    made = NodeStore("n1", classes=claimed(unclassed=True), drains=True)
    made.services.records[WEB.key] = WEB
    made.node_uid = "uid-n1"
    return made


@pytest.fixture
def node_events(events, store):
    return NodeEvents(events, store, "n1")


def decided(*services, **more):
    return decide_vips(snapshot(*services, **more))


class TestAnnouncedAddresses:
    def test_gained_addresses_of_a_service_are_one_event(self, node_events, events):
        made = decided(WEB)
        node_events.report_announced(made.here, made)
        text = f"Node n1 announces {VIP4}, {VIP6} on eth0"
        assert events.take() == [("AnnouncingLocal", text)]

    def test_the_event_is_about_the_service(self, node_events, events):
        made = decided(WEB)
        node_events.report_announced(made.here, made)
        about, _reason, _message, kind = events.records[0]
        assert (about.kind, about.namespace, about.name, about.uid) == (
            "Service",
            "default",
            "web",
            "uid-web",
        )
        assert kind == "Normal"

    def test_what_stays_is_reported_once(self, node_events, events):
        for _cycle in range(3):
            made = decided(WEB)
            node_events.report_announced(made.here, made)
        assert len(events.take()) == 1

    @EACH_VIP
    def test_an_address_on_every_node_is_announced_on_the_dummy_interface(
        self, node_events, events, vip
    ):
        made = decided(service(addresses=[vip]), dummy=DUMMY, groups=(REMOTE_GROUP,))
        node_events.report_announced(made.here, made)
        text = f"Node n1 announces {vip} on kube-lb0"
        assert events.take() == [("AnnouncingNonLocal", text)]

    @pytest.mark.parametrize(
        ("later", "why"),
        [
            (decided(WEB, members=["n2"]), "notWinner, n2 has won"),
            (decided(WEB, leaving=True, members=["n1"]), "leaving, n1 has won"),
            (decided(WEB, members=[]), "noEligibleNodes"),
            (decided(), "noService"),
        ],
        ids=["another winner", "leaving", "no candidate", "no service"],
    )
    def test_a_lost_address_is_reported_with_the_reason(self, node_events, events, later, why):
        made = decided(WEB)
        node_events.report_announced(made.here, made)
        events.take()
        node_events.report_announced(later.here, later)
        assert events.take() == [("Withdrawn", f"Node n1 withdrew {VIP4}, {VIP6} ({why})")]

    def test_a_deleted_service_gets_no_event(self, node_events, events, store):
        made = decided(WEB)
        node_events.report_announced(made.here, made)
        events.take()
        del store.services.records[WEB.key]
        node_events.report_announced([], decided())
        assert events.take() == []

    @EACH_VIP
    def test_each_service_that_shares_an_address_gets_an_event(
        self, node_events, events, store, vip
    ):
        shared = [service(name, [vip], sharing_key="k") for name in ("web", "shop")]
        store.services.records.update({made.key: made for made in shared})
        made = decided(*shared)
        node_events.report_announced(made.here, made)
        assert sorted(about.name for about, *_rest in events.records) == ["shop", "web"]


class TestUnservedAddresses:
    NOWHERE = decided(service(addresses=[VIP4]), members=[])

    def report(self, node_events, now, *, decisions=NOWHERE, is_cleanup_node=True):
        node_events.report_unserved(decisions, is_cleanup_node=is_cleanup_node, now=now)

    def test_nothing_is_reported_within_the_grace_period(self, node_events, events):
        self.report(node_events, 100.0)
        self.report(node_events, 100.0 + GRACE - 0.1)
        assert events.records == []

    def test_next_at_is_the_end_of_the_grace_period(self, node_events):
        assert node_events.next_at is None
        self.report(node_events, 100.0)
        assert node_events.next_at == 100.0 + GRACE

    def test_an_address_is_reported_once(self, node_events, events):
        for now in (100.0, 100.0 + GRACE, 200.0):
            self.report(node_events, now)
        (about, reason, message, kind) = events.records[0]
        assert (about.name, reason, kind) == ("web", "NoEligibleNodes", "Warning")
        assert message.startswith(f"{VIP4} is announced nowhere: no live node has a subnet")
        assert len(events.records) == 1
        assert node_events.next_at is None

    def test_other_nodes_do_not_report_it_even_if_they_become_the_cleanup_node(
        self, node_events, events
    ):
        self.report(node_events, 100.0)
        self.report(node_events, 100.0 + GRACE, is_cleanup_node=False)
        self.report(node_events, 200.0)
        assert events.records == []

    def test_an_address_that_was_served_again_starts_a_new_grace_period(self, node_events, events):
        self.report(node_events, 100.0)
        self.report(node_events, 104.0, decisions=decided(WEB))
        assert node_events.next_at is None
        self.report(node_events, 105.0)
        self.report(node_events, 109.0)
        assert events.records == []
        self.report(node_events, 110.0)
        assert len(events.records) == 1

    def test_a_second_gap_is_reported_again(self, node_events, events):
        for now in (100.0, 105.0):
            self.report(node_events, now)
        self.report(node_events, 106.0, decisions=decided(WEB))
        for now in (107.0, 112.0):
            self.report(node_events, now)
        assert len(events.records) == 2

    @EACH_VIP
    def test_the_address_of_a_node_is_reported_with_its_remedy(self, node_events, events, vip):
        made = decided(service(addresses=[vip]), known=frozenset({vip}))
        for now in (100.0, 105.0):
            self.report(node_events, now, decisions=made)
        text = "it is the address of a node: take it out of the ServiceGroup's pool"
        assert events.take() == [("NoEligibleNodes", f"{vip} is announced nowhere: {text}")]

    @EACH_VIP
    def test_a_vip_that_a_node_lists_is_reported_once_with_the_setting(
        self, node_events, events, vip
    ):
        for addresses in ({vip}, {vip}, set(), {vip}):
            node_events.report_mistaken(frozenset(addresses))
        assert events.reasons == ["NodeAddressMistaken"] * 2
        assert all(f"lists {vip}," in text and "--node-ip" in text for _, text in events.take())

    def test_a_fence_that_does_not_stand_is_reported_once_to_the_node(self, node_events, events):
        for said in ("", "eth0=refused", "eth0=refused", "exact", "off", "forbidden"):
            node_events.report_fence(said)
        first, second = events.take()
        assert first[0] == second[0] == "FenceIncomplete"
        assert "eth0: the kernel refused it" in first[1]
        assert "purelb_install_selinux_type" in second[1]

    @EACH_VIP
    def test_a_foreign_address_is_reported_by_its_node(self, node_events, events, vip):
        own = on_eth0(vip, lifetime=None, protocol=0)
        made = decided(service(addresses=[vip]), held=[own], all_links=(ETH0,))
        for now in (100.0, 105.0, 110.0):
            self.report(node_events, now, decisions=made, is_cleanup_node=False)
        text = (
            f"Node n1 does not announce {vip}: eth0 has this address already, and not by PureLB. "
            "Remove it there (ip addr del), or take it out of the ServiceGroup's pool"
        )
        assert events.take() == [("AddressConflict", text)]

    def test_a_node_that_lost_an_election_reports_nothing(self, node_events, events):
        for now in (100.0, 200.0):
            self.report(node_events, now, decisions=decided(WEB, members=["n2"]))
        assert events.records == []


class TestSilentNodes:
    """Another node, n2, whose agent cannot say that its addresses have left."""

    EXPIRED = 60.0
    DRAINED = "AddressesDrained"

    @pytest.fixture(autouse=True)
    def seen(self, store):
        self.renew(store, 0.0)

    def renew(self, store, now, **more):
        renewed = Lease(node="n2", holder="n2", renew_time=now, duration=10.0, **more)
        store.leases.counting = store.leases.counting.observe(renewed, now=now)

    def expire(self, store):
        """Let the end of its Lease be found."""
        counting = store.leases.counting.found("n2", Check.READ, asked_at=self.EXPIRED)
        store.leases.counting = counting.at(self.EXPIRED)
        assert not store.leases.counting.is_live("n2")

    def taint(self, store, taint):
        store.marked = {"n2": NodeMarks("uid-n2", taint)}

    def report(self, node_events, now, *, is_cleanup_node=True):
        node_events.report_silent(is_cleanup_node=is_cleanup_node, now=now)

    def test_gone_before_the_taint_came(self, node_events, events, store):
        self.report(node_events, 1.0)
        self.expire(store)
        self.taint(store, DRAINING_TAINTS[1])
        for now in (self.EXPIRED, self.EXPIRED + 1):
            self.report(node_events, now)
        (about, reason, message, kind) = events.records[0]
        assert (about.kind, about.name, about.uid) == ("Node", "n2", "uid-n2")
        assert (reason, kind) == ("AddressesDrained", "Normal")
        assert DRAINING_TAINTS[1] in message
        assert len(events.records) == 1

    def test_gone_with_its_lease_before_the_taint_came(self, node_events, events, store):
        self.report(node_events, 1.0)
        store.leases.counting = Counting()
        self.taint(store, DRAINING_TAINTS[1])
        self.report(node_events, 2.0)
        assert events.reasons == [self.DRAINED]

    def test_died_with_the_taint_and_without_a_renewal_since(self, node_events, events, store):
        self.report(node_events, 1.0)
        self.taint(store, DRAINING_TAINTS[1])
        self.report(node_events, 2.0)
        assert events.records == []
        self.expire(store)
        self.report(node_events, self.EXPIRED)
        assert events.reasons == [self.DRAINED]

    def test_died_with_the_taint_although_it_was_counted_longer(self, node_events, events, store):
        self.report(node_events, 1.0)
        self.taint(store, DRAINING_TAINTS[1])
        self.report(node_events, 2.0)
        store.leases.counting = store.leases.counting.promise("n2", until=30.0)
        self.report(node_events, 15.0)
        assert events.records == []
        self.expire(store)
        self.report(node_events, self.EXPIRED)
        assert events.reasons == [self.DRAINED]

    def test_said_that_its_right_is_over(self, node_events, events, store):
        self.renew(store, 0.5, epoch="n2.1")
        self.report(node_events, 1.0)
        self.taint(store, DRAINING_TAINTS[1])
        self.report(node_events, 2.0)
        store.leases.counting = store.leases.counting.said_over("n2", "n2.1")
        self.report(node_events, 8.0)
        assert events.reasons == [self.DRAINED]
        assert "gone or cut off" in events.records[0][2]

    def test_with_the_label_only_has_nothing_to_say(self, node_events, events, store):
        self.report(node_events, 0.0)
        store.marked = {"n2": NodeMarks("uid-n2", is_excluded=True)}
        self.expire(store)
        self.report(node_events, self.EXPIRED)
        assert events.reasons == []

    def test_that_renewed_with_the_taint_has_spoken_itself(self, node_events, events, store):
        self.report(node_events, 1.0)
        self.taint(store, DRAINING_TAINTS[1])
        self.report(node_events, 2.0)
        self.renew(store, 5.0)
        self.expire(store)
        self.report(node_events, self.EXPIRED)
        assert events.records == []

    def test_that_released_its_lease_with_the_taint_has_spoken_itself(
        self, node_events, events, store
    ):
        self.report(node_events, 1.0)
        self.taint(store, DRAINING_TAINTS[1])
        self.report(node_events, 2.0)
        store.leases.counting = Counting()
        self.report(node_events, 3.0)
        assert events.records == []

    def test_is_not_told_at_the_start_nor_by_another_than_the_cleanup_node(
        self, node_events, events, store
    ):
        self.expire(store)
        self.taint(store, DRAINING_TAINTS[1])
        self.report(node_events, self.EXPIRED)
        self.taint(store, DRAINING_TAINTS[0])
        self.report(node_events, self.EXPIRED, is_cleanup_node=False)
        self.report(node_events, self.EXPIRED)
        assert events.records == []

    def test_node_without_an_agent_is_not_told(self, node_events, events, store):
        store.leases.counting = Counting()
        self.report(node_events, 1.0)
        self.taint(store, DRAINING_TAINTS[1])
        self.report(node_events, 2.0)
        assert events.records == []

    def test_own_node_speaks_for_itself(self, node_events, events, store):
        self.report(node_events, 1.0)
        store.marked = {"n1": NodeMarks("uid-n1", DRAINING_TAINTS[1])}
        self.report(node_events, 2.0)
        assert events.records == []


@EACH_VIP
def test_a_duplicate_address_is_reported_to_each_of_its_services(node_events, events, store, vip):
    shared = [service(name, [vip], sharing_key="k") for name in ("web", "shop")]
    store.services.records.update({made.key: made for made in shared})
    (decision,) = decided(*shared).here
    conflict = DuplicateAddress(vip, ETH0.index, b"\x02\0\0\0\0\x63")
    node_events.report_conflict(decision, conflict, now=1.0)
    assert [reason for reason, _message in events.take()] == ["AddressConflict"] * 2


@EACH_VIP
def test_of_the_nodes_that_answer_one_is_reported_in_a_while(node_events, events, vip):
    (decision,) = decided(service(addresses=[vip], uid="uid-web")).here
    for number, now in enumerate((1.0, 1.1, 31.2)):
        mac = bytes([2, 0, 0, 0, 0, number])
        conflict = DuplicateAddress(vip, ETH0.index, mac, f"m{number}")
        node_events.report_conflict(decision, conflict, now=now)
    (_, first), (_, second) = events.take()
    assert first.startswith(f"Node m0 answers for {vip}, too (02:00:00:00:00:00 answers for it on")
    assert "strictARP" in first
    assert second.startswith("Node m2 ")

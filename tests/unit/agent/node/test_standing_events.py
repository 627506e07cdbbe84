# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Events about what keeps addresses off the own node."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.election.claims import claimed
from purelb.core.election.members import Standing
from purelb.core.model import Reason
from purelb.core.names import DRAINING_TAINTS, EXCLUDE_LABEL, SPOT_TAINT_KEY
from purelb.core.node.decisions import decide_vips
from purelb_agent.kube.store import NodeStore
from purelb_agent.node.standing_events import StandingEvents
from tests.support.agent.recorded_events import RecordedEvents
from tests.support.core.snapshots import VIP4, VIP6, service, snapshot

FIRST, EXCLUDED, EVICTED, ILL, DRAINED = Standing
TAINT = DRAINING_TAINTS[0]
TAINTS = {EVICTED: SPOT_TAINT_KEY, DRAINED: TAINT}
HERE = decide_vips(snapshot(service())).here
# Another node has won them, and has not asked yet.
ASKED = tuple(replace(decision, reason=Reason.KEPT) for decision in HERE)
PATIENCE = 5.0
SETTLED = 1.0


@pytest.fixture
def events():
    return RecordedEvents()


@pytest.fixture
def standing_events(events):
    store = NodeStore("n1", classes=claimed(unclassed=True), drains=True)
    store.node_uid = "uid-n1"
    return StandingEvents(events, store, "n1")


@pytest.fixture
def report(standing_events):
    def call(standing, announced=(), *, done=True, now=0.0, **more):
        more = {"taint": TAINTS.get(standing, ""), **more}
        made = decide_vips(snapshot(service(), standing=standing, **more))
        standing_events.report(made, announced, done=done, now=now)

    return call


def test_the_node_is_told_when_its_addresses_have_left(report, events):
    report(DRAINED)
    (about, reason, message, kind) = events.records[0]
    assert (about.kind, about.name, about.uid) == ("Node", "n1", "uid-n1")
    assert (reason, kind) == ("AddressesDrained", "Normal")
    assert message == f"All addresses of LoadBalancer Services left this node (taint {TAINT})"


def test_success_after_a_failure_is_told_too_and_each_once(report, events):
    for done in (False, False, True, True):
        report(DRAINED, done=done)
    assert events.reasons == ["AddressesNotDrained", "AddressesDrained"]
    assert [record.kind for record in events.records] == ["Warning", "Normal"]


def test_the_end_is_told_once_and_not_at_the_start(report, events):
    for standing in (FIRST, FIRST, DRAINED, FIRST, FIRST):
        report(standing)
    assert events.reasons == ["AddressesDrained", "AddressesRestored"]


def test_another_taint_is_reported(report, events):
    for taint in DRAINING_TAINTS[:2]:
        report(DRAINED, taint=taint)
    assert events.reasons == ["AddressesDrained"] * 2


@pytest.mark.parametrize(
    ("standing", "cause", "kind"),
    [
        (EVICTED, f"taint {SPOT_TAINT_KEY}", "Warning"),
        # A single node with the label, as kubeadm makes it, is in order.
        (EXCLUDED, f"label {EXCLUDE_LABEL}", "Normal"),
    ],
)
def test_addresses_that_no_other_node_can_have_are_named(report, events, standing, cause, kind):
    report(standing, HERE, now=10.0)
    report(standing, HERE, now=10.0 + SETTLED)
    ((_about, reason, message, found),) = events.records
    assert (reason, found) == ("AddressesNotDrained", kind)
    assert message.startswith(f"No better node can have {VIP4}, {VIP6}, so this node keeps")
    assert cause in message
    assert message.endswith(", ".join(DRAINING_TAINTS[:2]))


@pytest.mark.parametrize("standing", [EXCLUDED, EVICTED, DRAINED])
def test_addresses_that_others_are_about_to_take_are_not_reported(
    report, standing_events, events, standing
):
    report(standing, ASKED, now=10.0)
    assert standing_events.next_at == 10.0 + PATIENCE
    report(standing, ASKED, now=12.0)
    assert events.reasons == []
    report(standing, now=12.1)
    assert events.reasons == ["AddressesDrained"]
    assert standing_events.next_at is None


def test_that_nobody_takes_them_is_reported_after_a_while(report, standing_events, events):
    report(DRAINED, ASKED, now=10.0)
    for now in (10.0 + PATIENCE, 20.0):
        report(DRAINED, ASKED, now=now)
    assert events.take() == [
        ("AddressesNotDrained", f"No other node has asked for {VIP4}, {VIP6} yet (taint {TAINT})")
    ]
    assert events.records == []
    # The agent need not wake up for it again.
    assert standing_events.next_at is None


def test_what_stays_is_named_when_the_rest_has_left(report, events):
    report(EVICTED, (HERE[0], ASKED[1]), now=10.0)
    assert events.take() == []
    report(EVICTED, (HERE[0],), now=11.0)
    report(EVICTED, (HERE[0],), now=11.0 + SETTLED)
    ((_reason, message),) = events.take()
    assert message.startswith(f"No better node can have {HERE[0].vip.address}, so")


def test_addresses_that_come_back_one_by_one_are_named_together(report, standing_events, events):
    report(EVICTED, (HERE[0],), now=10.0)
    assert standing_events.next_at == 10.0 + SETTLED
    report(EVICTED, HERE, now=10.9)
    report(EVICTED, HERE, now=11.8)
    assert events.take() == []
    report(EVICTED, HERE, now=10.9 + SETTLED)
    ((_reason, message),) = events.take()
    assert message.startswith(f"No better node can have {VIP4}, {VIP6}, so")
    assert standing_events.next_at is None


def test_what_a_node_had_before_its_mark_is_named_at_once(report, events):
    report(FIRST, HERE, now=10.0)
    report(EVICTED, HERE, now=20.0)
    assert events.reasons == ["AddressesNotDrained"]


def test_a_dead_service_proxy_is_told_whatever_left(report, events):
    for announced in ((), ASKED, HERE):
        report(ILL, announced)
    report(FIRST)
    assert events.reasons == ["ServiceProxyDown", "AddressesRestored"]
    assert [record.kind for record in events.records] == ["Warning", "Normal"]


def test_who_waits_for_a_drained_node_hears_of_it_with_a_dead_service_proxy_too(report, events):
    report(ILL, taint=SPOT_TAINT_KEY)
    assert events.reasons == ["AddressesDrained"]

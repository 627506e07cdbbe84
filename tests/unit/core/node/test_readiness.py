# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.node.readiness import PATIENCE, Readiness
from tests.support.core.snapshots import NOW, VIP4, VIP6, on_eth0, planned, service, snapshot

FIRST = planned(snapshot(service()))
PLACES = frozenset((put.link, put.address) for put in FIRST.puts)


def started(held=PLACES, made=FIRST):
    return Readiness().after(made, held, (), now=NOW)


def test_a_node_is_not_ready_before_its_first_plan():
    assert not Readiness().is_ready(NOW)
    assert not Readiness().has_acted


def test_nothing_to_announce_is_ready_at_once():
    assert started(made=planned(snapshot())).is_ready(NOW)


def test_ipv4_is_ready_as_soon_as_it_is_on_the_interface():
    made = planned(snapshot(service(addresses=[VIP4])))
    assert started(made=made).is_ready(NOW)


def test_ipv6_is_ready_when_the_kernel_has_found_no_duplicate():
    waiting = started()
    assert waiting.has_acted
    assert not waiting.is_ready(NOW)
    probed = (on_eth0(VIP6, tentative=True),)
    still = waiting.after(FIRST, PLACES, probed, now=NOW + 1)
    assert not still.is_ready(NOW + 1)
    done = still.after(FIRST, PLACES, (on_eth0(VIP6),), now=NOW + 2)
    assert done.is_ready(NOW + 2)


def test_ipv6_without_duplicate_address_detection_is_ready_at_once():
    puts = tuple(replace(put, no_dad=True) for put in FIRST.puts)
    assert started(made=replace(FIRST, puts=puts)).is_ready(NOW)


@pytest.mark.parametrize(
    "seen",
    [(on_eth0(VIP6, tentative=True, dad_failed=True),), ()],
    ids=["marked", "taken away"],
)
def test_duplicate_address_does_not_delay_readiness(seen):
    after = started().after(FIRST, PLACES, seen, now=NOW + 1)
    assert after.is_ready(NOW + 1)
    # Put back by the next plan, and refused again.
    again = after.after(FIRST, PLACES, (on_eth0(VIP6, tentative=True),), now=NOW + 2)
    assert again.is_ready(NOW + 2)


def test_an_address_that_the_kernel_refused_is_not_waited_for():
    assert started(held=frozenset()).is_ready(NOW)


def test_a_link_without_carrier_is_not_waited_for_longer_than_detection_could_take():
    waiting = started()
    assert not waiting.is_ready(NOW + PATIENCE - 0.1)
    assert waiting.is_ready(NOW + PATIENCE)


def test_address_from_before_the_start_is_usable():
    kept = planned(snapshot(service(), held=(on_eth0(VIP4), on_eth0(VIP6))))
    assert started(made=kept).is_ready(NOW)


def test_later_address_does_not_delay_readiness():
    ready = started(made=planned(snapshot()))
    assert ready.after(FIRST, PLACES, (), now=NOW + 60).is_ready(NOW + 60)

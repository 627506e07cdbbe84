# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a node answers to a peer whose Lease expires while it answers."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from purelb.core.election.claims import claimed
from purelb.core.election.leases import CONFIRMATION, HoldDeadline
from purelb.core.election.peer_keys import PeerKeys
from purelb.core.election.peers import PeerAnswer, build_question, read_reply
from purelb.core.settings import LeaseTiming
from purelb_agent.kube.store import NodeStore
from purelb_agent.lease.peers import Peers
from purelb_agent.runtime import clock
from tests.support.agent.kubernetes_objects import lease_object

TIMING = LeaseTiming()
KEY = b"sixteen bytes or more"
INSTANT = 0.001


async def cannot_renew():
    return False


async def nobody(_address, _headers):
    raise AssertionError("this node only answers")


@pytest.fixture
def store():
    """The store of a node that may still hold addresses, a moment before its peer's Lease ends."""
    made = NodeStore("n1", classes=claimed(unclassed=True), drains=True)
    made.leases.put(lease_object("n2"))
    made.set_hold_deadline(HoldDeadline(clock.now() + 100, clock.now() + 100))
    return made


@pytest.mark.parametrize("readings", range(1, 8))
async def test_the_answer_cannot_is_never_given_without_a_promise(
    store, virtual_clock, monkeypatch, readings
):
    """The peer's Lease expires after so many readings of the clock."""
    virtual_clock.advance(TIMING.duration + CONFIRMATION - INSTANT)
    left = iter(range(readings))

    def now():
        if next(left, None) is None and virtual_clock.now() < expiry:
            virtual_clock.advance(2 * INSTANT)
        return virtual_clock.now()

    expiry = virtual_clock.now() + INSTANT
    monkeypatch.setattr(clock, "now", now)
    peers = Peers(
        "n1",
        lambda: PeerKeys(KEY),
        timing=TIMING,
        could_renew=cannot_renew,
        promises=store,
        get=nobody,
    )
    headers = build_question(KEY, asker="n2", peer="n1", nonce="nonce")
    response = await peers.handle(SimpleNamespace(headers=headers))
    answer = read_reply(KEY, peer="n1", nonce="nonce", text=response.body)
    is_live = store.leases.membership.is_live("n2", expiry + INSTANT)
    assert (answer is PeerAnswer.CANNOT) == is_live

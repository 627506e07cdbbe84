# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a node answers to a peer whose Lease ends while it answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from purelb.core.election.claims import claimed
from purelb.core.holding.counted_lease import Check
from purelb.core.holding.messages import build_message, read_response
from purelb.core.holding.outage import (
    OUTAGE,
    OutageQuestion,
    PeerAnswer,
    outage_question_body,
    read_outage_answer,
)
from purelb.core.holding.peer_keys import PeerKeys
from purelb.core.settings import LeaseTiming, TimingChoice
from purelb_agent.holding.outage import OutageKeeper
from purelb_agent.kube.store import NodeStore
from purelb_agent.peers.peers import Peers
from purelb_agent.runtime import clock
from tests.support.agent.kubernetes_objects import lease_object
from tests.support.agent.recorded_events import RecordedEvents

TIMING = LeaseTiming()
CHOICE = TimingChoice(TIMING.duration, TIMING.renew_deadline, TIMING.retry_period)
KEY = b"sixteen bytes or more"
PATIENCE = 0.5


async def unreachable(_address, _message):
    raise AssertionError("this node only answers")


@pytest.fixture
def store():
    """The store of a node with a peer; nothing has been found out about the peer's Lease."""
    made = NodeStore("n1", classes=claimed(unclassed=True), drains=True, timing=CHOICE)
    made.leases.put(lease_object("n2", epoch="e.1"))
    made.leases.put(lease_object("n3", epoch="f.1"))
    made.leases.listed = True
    return made


@pytest.fixture
def asked():
    """Since when the renewals of the askers fail, by how many seconds."""
    return []


@pytest.fixture
def ask(store, asked):
    """Ask the node as a peer; returns its answer."""

    async def cannot_renew(since):
        asked.append(clock.now() - since)
        await asyncio.sleep(PATIENCE)

    peers = Peers("n1", lambda: PeerKeys(KEY), send=unreachable)
    renewer = SimpleNamespace(renewed=cannot_renew)
    OutageKeeper(peers, renewer, store, RecordedEvents(), metrics=None)

    async def ask(asker, **more):
        body = {
            **outage_question_body(OutageQuestion(asker, failing_for=1.5, duration=10.0)),
            **more,
        }
        message = build_message(KEY, peer="n1", kind=OUTAGE, nonce="nonce", body=body)

        async def read():
            return message

        response = await peers.handle(SimpleNamespace(read=read))
        if response.status != 200:
            return response.status
        found = read_response(KEY, response.body, peer="n1", nonce="nonce")
        return read_outage_answer(found).answer

    return ask


def find_end(store, *, asked_at):
    """Find out that nothing speaks against the end of the peer's Lease."""
    counting = store.leases.counting
    for check in Check:
        counting = counting.found("n2", check, asked_at=asked_at)
    store.leases.change(counting)


def is_live(store):
    return store.leases.counting.is_live("n2")


@pytest.mark.parametrize("after", [0.1, PATIENCE - 0.1, PATIENCE + 0.1])
@pytest.mark.parametrize("took", [0.0, 0.2])
async def test_the_answer_cannot_is_never_given_without_a_promise(store, ask, after, took):
    """The end is found out while the node answers; its last request `took` so many seconds."""
    await asyncio.sleep(TIMING.duration)
    asking = asyncio.create_task(ask("n2"))
    await asyncio.sleep(after)
    find_end(store, asked_at=clock.now() - min(took, after))
    answer = await asking
    is_promised = "n2" in store.leases.counting.promises
    assert (answer is PeerAnswer.CANNOT) == is_promised == (after > PATIENCE)
    # It was heard, so its end is found out again.
    assert is_live(store)
    find_end(store, asked_at=clock.now())
    assert is_live(store) == is_promised


async def test_who_was_promised_counts_for_a_full_duration_from_then_on(store, ask):
    await asyncio.sleep(TIMING.duration - 1)
    assert await ask("n2") is PeerAnswer.CANNOT
    await asyncio.sleep(TIMING.duration - 0.1)
    find_end(store, asked_at=clock.now())
    assert is_live(store)
    await asyncio.sleep(0.1)
    find_end(store, asked_at=clock.now())
    assert not is_live(store)


async def test_a_stranger_is_not_answered_cannot(ask):
    assert await ask("n9") is PeerAnswer.KNOWS


async def test_a_peer_hears_for_how_long_the_asker_fails(ask, asked):
    await ask("n2")
    assert asked == [1.5]


async def test_a_question_that_cannot_be_read_is_not_answered(store, ask, asked):
    assert await ask("n2", failingFor="x") == 503
    assert asked == []
    assert store.leases.counting.promises == {}

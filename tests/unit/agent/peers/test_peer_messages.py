# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Messages between agents in virtual time: what is told, answered, and sent a second time."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address
from types import SimpleNamespace

import pytest

from purelb.core.holding.messages import build_message, read_response
from purelb.core.holding.peer_keys import PeerKeys
from purelb_agent.peers.peers import Peers
from purelb_agent.runtime import clock

KEY, OTHER_KEY = b"sixteen bytes or more", b"another sixteen bytes"
V4, V6 = ip_address("192.0.2.2"), ip_address("2001:db8::2")
# So deep that a JSON parser gives up.
DEEP = b"[" * 100_000


class Wire:
    """Carries messages from `a` to agents by address; what was sent, to whom and when."""

    def __init__(self):
        self.sent = []
        self.agents = {}
        # The messages by number, from 0 on, that get lost.
        self.lost = set()
        self.under_way = 0

    async def send(self, address, message):
        number = len(self.sent)
        self.sent.append((address, clock.now()))
        self.under_way += 1
        try:
            if number in self.lost:
                await asyncio.Event().wait()
            return await self.agents[address](message)
        except KeyError as error:
            raise OSError(f"no host at {address}") from error
        finally:
            self.under_way -= 1

    def peer(self, name, key=KEY):
        return Peers(name, lambda: PeerKeys(key), send=self.send)

    def serve(self, address, peers):
        async def answer(message):
            response = await handled(peers, message)
            if response.status != 200:
                raise OSError(response.text)
            return response.body

        self.agents[address] = answer


async def handled(peers, message):
    async def read():
        return message

    return await peers.handle(SimpleNamespace(read=read))


@pytest.fixture
def wire():
    return Wire()


@pytest.fixture
def asker(wire):
    return wire.peer("a")


@pytest.fixture
def peer(wire):
    """The agent of `b`, which is reached at both addresses and counts what it is told."""
    made = wire.peer("b")
    made.told = []

    async def count(body):
        made.told.append(body)
        return {"number": len(made.told)}

    made.answers["count"] = count
    for address in (V4, V6):
        wire.serve(address, made)
    return made


class TestTell:
    async def test_a_peer_answers_what_it_is_told(self, asker, peer):
        assert await asker.tell("b", [V4], "count", {"x": [1]}) == {"number": 1}
        assert peer.told == [{"x": [1]}]

    async def test_one_address_that_answers_is_enough(self, asker, peer, wire):
        del wire.agents[V4]
        assert await asker.tell("b", [V4, V6], "count", {}) == {"number": 1}

    async def test_without_an_answer_it_gives_up_in_time(self, asker, peer, wire):
        wire.lost = {0}
        before = clock.now()
        assert await asker.tell("b", [V4], "count", {}, seconds=0.3) is None
        assert clock.now() == pytest.approx(before + 0.3)
        assert wire.under_way == 0

    @pytest.mark.parametrize("addresses", [[], [V4]], ids=["unknown", "no host there"])
    async def test_who_is_not_reached_answers_nothing(self, asker, addresses):
        assert await asker.tell("b", addresses, "count", {}) is None

    async def test_a_message_that_got_lost_is_sent_a_second_time(self, asker, peer, wire):
        wire.lost = {0}
        before = clock.now()
        assert await asker.tell("b", [V4], "count", {}, seconds=0.4, again=0.2) == {"number": 1}
        assert wire.sent == [(V4, before), (V4, pytest.approx(before + 0.2))]
        assert wire.under_way == 0

    async def test_one_that_was_answered_is_sent_once(self, asker, peer, wire):
        await asker.tell("b", [V4], "count", {}, seconds=0.4, again=0.2)
        await asyncio.sleep(1)
        assert len(wire.sent) == 1

    @pytest.mark.parametrize("reply", [b"", b"{}", b'{"mac": "x", "text": "{}"}', DEEP])
    async def test_an_invalid_reply_is_none(self, asker, wire, reply):
        async def babble(_message):
            return reply

        wire.agents[V4] = babble
        assert await asker.tell("b", [V4], "count", {}) is None

    async def test_a_reply_of_another_node_is_none(self, asker, peer, wire):
        assert await asker.tell("c", [V4], "count", {}) is None
        assert peer.told == []

    async def test_an_agent_with_another_key_answers_nothing(self, asker, wire):
        wire.serve(V4, wire.peer("b", key=OTHER_KEY))
        assert await asker.tell("b", [V4], "count", {}) is None

    async def test_a_reply_to_another_message_is_none(self, asker, peer, wire):
        recorded = []
        answer = wire.agents[V4]

        async def replay(message):
            recorded.append(await answer(message))
            return recorded[0]

        wire.agents[V4] = replay
        assert await asker.tell("b", [V4], "count", {}) == {"number": 1}
        assert await asker.tell("b", [V4], "count", {}) is None

    async def test_at_most_32_messages_are_under_way(self, asker, wire):
        most = []

        async def slow(_message):
            most.append(wire.under_way)
            await asyncio.sleep(0.1)
            raise OSError("later")

        wire.agents[V4] = slow
        await asyncio.gather(*(asker.tell(f"n{i}", [V4], "count", {}) for i in range(100)))
        assert len(most) == 100
        assert max(most) == 32


class TestAnswering:
    def message(self, key=KEY, *, peer="b", kind="count"):
        return build_message(key, peer=peer, kind=kind, nonce="n", body={})

    async def test_the_response_is_signed_for_this_message(self, peer):
        response = await handled(peer, self.message())
        assert read_response(KEY, response.body, peer="b", nonce="n") == {"number": 1}

    @pytest.mark.parametrize("case", ["another key", "another peer", "garbage", "deep"])
    async def test_what_is_not_signed_for_this_node_gets_403(self, peer, case):
        message = {
            "another key": self.message(OTHER_KEY),
            "another peer": self.message(peer="c"),
            "garbage": b"\xff",
            "deep": DEEP,
        }[case]
        assert (await handled(peer, message)).status == 403
        assert peer.told == []

    async def test_a_kind_that_no_one_answers_gets_503(self, peer):
        assert (await handled(peer, self.message(kind="other"))).status == 503

    async def test_who_cannot_answer_now_says_so(self, peer):
        async def not_now(_body):
            return None

        peer.answers["count"] = not_now
        assert (await handled(peer, self.message())).status == 503

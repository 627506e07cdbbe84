# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Agents that ask and answer each other over the loopback interface, in real time."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_address

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry

from purelb.core.holding.messages import build_message, read_message
from purelb.core.holding.outage import (
    OUTAGE,
    CanRenew,
    OutageQuestion,
    PeerAnswer,
    outage_question_body,
)
from purelb.core.holding.peer_keys import PeerKeys
from purelb.core.settings import LeaseTiming
from purelb_agent.lease.peer_http import PATH, PeerHttp
from purelb_agent.lease.peers import Peers
from purelb_agent.runtime import clock
from purelb_agent.runtime.probes import Probes

pytestmark = pytest.mark.real_time

CAN, CANNOT, KNOWS, SILENT = PeerAnswer.CAN, PeerAnswer.CANNOT, PeerAnswer.KNOWS, PeerAnswer.SILENT
TIMING = LeaseTiming()
KEY, OTHER_KEY = b"sixteen bytes or more", b"another sixteen bytes"
V4, V6 = ip_address("127.0.0.1"), ip_address("::1")
OTHER_V4 = ip_address("127.0.0.2")
BOTH = pytest.mark.parametrize("address", [V4, V6], ids=["v4", "v6"])


def says(outcome):
    """What `Renewer.renewed` says; by default of a renewal that was sent in this moment."""

    async def renewed(_since):
        return 0.0 if outcome is True else None

    return renewed


def question(peer, *, asker="a", key=KEY):
    body = outage_question_body(OutageQuestion(asker, failing_for=1.0))
    return build_message(key, peer=peer, kind=OUTAGE, nonce="n", body=body)


async def never(*_request):
    await asyncio.Event().wait()


class RecordedPromises:
    """Promises, if it may, and records for how many seconds."""

    def __init__(self, *, may):
        self.seconds = {}
        self.heard = []
        self._may = may

    def promise(self, node, *, seconds):
        if self._may:
            self.seconds[node] = seconds
        return self._may

    def hear_from(self, node):
        self.heard.append(node)


@pytest.fixture
async def agent(port):
    """Start agents that ask; those that are given an address also answer there."""
    async with AsyncExitStack() as stack, PeerHttp(port) as http:

        async def start(name, *addresses, outcome=False, key=KEY, renewed=None, may=True, also=()):
            promises = RecordedPromises(may=may)
            peers = Peers(
                name,
                lambda: PeerKeys(peers.now or key, also),
                timing=TIMING,
                renewed=renewed or says(outcome),
                promises=promises,
                send=http.send,
            )
            peers.now, peers.promised, peers.askers = None, promises.seconds, promises.heard
            for address in addresses:
                await stack.enter_async_context(serving(peers.handle, address, port))
            return peers

        yield start


@asynccontextmanager
async def serving(handler, address, port):
    app = web.Application()
    app.router.add_route("*", PATH, handler)
    runner = web.AppRunner(app, shutdown_timeout=0.01, handler_cancellation=True)
    await runner.setup()
    await web.TCPSite(runner, str(address), port, backlog=512).start()
    try:
        yield
    finally:
        await runner.cleanup()


class TestAsking:
    @BOTH
    @pytest.mark.parametrize(("outcome", "expected"), [(True, CAN), (False, CANNOT)], ids=str)
    async def test_a_peer_answers_whether_it_can_renew(self, agent, address, outcome, expected):
        asker = await agent("a")
        await agent("b", address, outcome=outcome)
        assert await asker.ask({"a": [address], "b": [address]}, since=clock.now() - 5) == {
            "b": expected
        }

    async def test_two_agents_ask_each_other(self, agent):
        one = await agent("a", V4, outcome=False)
        other = await agent("b", OTHER_V4, V6, outcome=True)
        members = {"a": [V4], "b": [OTHER_V4, V6]}
        assert await asyncio.gather(
            one.ask(members, since=clock.now() - 5), other.ask(members, since=clock.now() - 5)
        ) == [
            {"b": CAN},
            {"a": CANNOT},
        ]

    async def test_a_node_without_peers_asks_none(self, agent):
        asker = await agent("a")
        assert await asker.ask({"a": [V4]}, since=clock.now() - 5) == {}

    @pytest.mark.parametrize("broken", [V4, V6], ids=["v4", "v6"])
    async def test_one_address_that_answers_is_enough(self, agent, broken, port):
        asker = await agent("a")
        working = V6 if broken == V4 else V4
        await agent("b", working, outcome=True)
        async with serving(never, broken, port):
            before = clock.now()
            assert await asker.ask(
                {"b": [broken, working]}, since=clock.now() - 5, seconds=8.0
            ) == {"b": CAN}
            assert clock.now() - before < 4

    async def test_an_invalid_reply_from_one_address_does_not_hide_a_valid_one_from_another(
        self, agent, port
    ):
        asker = await agent("a")
        await agent("b", V6, outcome=True)
        async with serving(garbage(b"?"), V4, port):
            assert await asker.ask({"b": [V4, V6]}, since=clock.now() - 5) == {"b": CAN}


def garbage(body, **more):
    async def handle(_request):
        return web.Response(body=body, **more)

    return handle


async def endless(request):
    reply = web.StreamResponse()
    await reply.prepare(request)
    while True:
        await reply.write(b"x" * 65536)


@BOTH
class TestSilence:
    async def test_a_closed_port_is_silent(self, agent, address):
        asker = await agent("a")
        assert await asker.ask({"b": [address]}, since=clock.now() - 5) == {"b": SILENT}

    async def test_a_peer_without_an_address_is_silent(self, agent, address):
        asker = await agent("a")
        assert await asker.ask({"b": []}, since=clock.now() - 5) == {"b": SILENT}

    async def test_a_peer_that_never_answers_is_silent_at_the_timeout(self, agent, address, port):
        asker = await agent("a")
        async with serving(never, address, port):
            before = clock.now()
            assert await asker.ask({"b": [address]}, since=clock.now() - 5, seconds=0.2) == {
                "b": SILENT
            }
            # Not at the timeout that a question has by default.
            assert 0.2 <= clock.now() - before < 1

    async def test_silent_peers_do_not_hide_one_that_answers(self, agent, address, port):
        asker = await agent("a")
        await agent("b", address, outcome=False)
        async with serving(never, OTHER_V4, port):
            answers = await asker.ask({"b": [address], "c": [OTHER_V4]}, since=clock.now() - 5)
        assert answers == {"b": CANNOT, "c": SILENT}

    @pytest.mark.parametrize(
        "handler",
        [
            garbage(b'{"answer": "can", "mac": ""}'),
            garbage(b""),
            garbage(b"\xff" * 100),
            garbage(b"[" * (2**20 + 1)),
            garbage(b"no", status=500),
            garbage(b"", status=302, headers={"Location": "/metrics"}),
            endless,
        ],
        ids=["unsigned", "empty", "no text", "long", "error", "redirect", "endless"],
    )
    async def test_an_invalid_reply_is_silence(self, agent, address, port, handler):
        asker = await agent("a")
        async with serving(handler, address, port):
            assert await asker.ask({"b": [address]}, since=clock.now() - 5, seconds=0.3) == {
                "b": SILENT
            }

    async def test_a_server_of_another_protocol_is_silent(self, agent, address, port):
        async def babble(_reader, writer):
            writer.write(b"SSH-2.0-OpenSSH\r\n")
            writer.close()
            await writer.wait_closed()

        asker = await agent("a")
        async with await asyncio.start_server(babble, str(address), port):
            assert await asker.ask({"b": [address]}, since=clock.now() - 5) == {"b": SILENT}

    async def test_an_agent_with_another_key_is_silent(self, agent, address):
        asker = await agent("a")
        await agent("b", address, outcome=True, key=OTHER_KEY)
        assert await asker.ask({"b": [address]}, since=clock.now() - 5) == {"b": SILENT}

    async def test_an_agent_that_accepts_the_key_answers_with_it(self, agent, address):
        asker = await agent("a")
        await agent("b", address, outcome=True, key=OTHER_KEY, also=(KEY,))
        assert await asker.ask({"b": [address]}, since=clock.now() - 5) == {"b": CAN}

    async def test_the_keys_are_those_of_the_moment(self, agent, address):
        asker = await agent("a")
        peer = await agent("b", address, outcome=True)
        answers = []
        for asks, answered in [(None, None), (OTHER_KEY, None), (OTHER_KEY, OTHER_KEY)]:
            asker.now, peer.now = asks, answered
            answers.append((await asker.ask({"b": [address]}, since=clock.now() - 5))["b"])
        assert answers == [CAN, SILENT, CAN]

    async def test_a_reply_of_another_node_is_silence(self, agent, address):
        asker = await agent("a")
        await agent("c", address, outcome=True)
        assert await asker.ask({"b": [address]}, since=clock.now() - 5) == {"b": SILENT}

    async def test_a_replayed_reply_is_silence(self, agent, address, port):
        recorded = []

        async def replay(request):
            if not recorded:
                reply = await speaker.handle(request)
                recorded.append(reply.body)
            return web.Response(body=recorded[0])

        asker, speaker = await agent("a"), await agent("b", outcome=True)
        async with serving(replay, address, port):
            assert await asker.ask({"b": [address]}, since=clock.now() - 5) == {"b": CAN}
            assert await asker.ask({"b": [address]}, since=clock.now() - 5) == {"b": SILENT}


def asking_tasks():
    names = {task.get_coro().__qualname__ for task in asyncio.all_tasks()}
    return {name for name in names if name.startswith("Peers.")}


class TestBounds:
    async def test_at_most_256_peers_are_asked_in_parallel(self, agent, port):
        # By peer: each may be asked a second time meanwhile.
        under_way, most, full = Counter(), [], asyncio.Event()

        peers = {f"peer-{n}": [V4] for n in range(300)}

        async def count(request):
            message = await request.read()
            peer = next(peer for peer in peers if read_message([KEY], message, peer=peer))
            under_way[peer] += 1
            most.append(len(+under_way))
            if most[-1] == 256:
                # Late enough for a 257th, if there were one.
                asyncio.get_running_loop().call_later(0.3, full.set)
            try:
                await full.wait()
            finally:
                under_way[peer] -= 1
            return web.Response()

        asker = await agent("a")
        async with serving(count, V4, port):
            answers = await asker.ask(peers, since=clock.now() - 5, seconds=5.0)
        assert len(answers) == 300
        assert max(most) == 256

    async def test_a_cancelled_round_of_questions_leaves_no_request(self, agent, port):
        asker = await agent("a")
        async with serving(never, V4, port):
            asking = asyncio.create_task(
                asker.ask({"b": [V4]}, since=clock.now() - 5, seconds=60.0)
            )
            await asyncio.sleep(0.05)
            assert asking_tasks() != set()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert asking_tasks() == set()


class TestAnswering:
    async def test_a_node_that_cannot_renew_passes_on_what_it_heard_directly(self, agent):
        asker = await agent("a")
        between = await agent("b", V4, outcome=False)
        await agent("c", V6, outcome=True)
        assert await between.ask({"c": [V6]}, since=clock.now() - 5) == {"c": CAN}
        assert await asker.ask({"b": [V4]}, since=clock.now() - 5) == {"b": KNOWS}

    async def test_what_it_heard_of_before_the_asker_failed_it_does_not_pass_on(self, agent):
        async def renewed(_since):
            return 2.0

        asker, between = await agent("a"), await agent("b", V4, outcome=False)
        await agent("c", V6, renewed=renewed)
        failing_since = clock.now()
        assert await between.ask({"c": [V6]}, since=failing_since - 3) == {"c": CAN}
        answers = [
            await asker.ask({"b": [V4]}, since=since)
            for since in (failing_since - 3, failing_since - 1)
        ]
        assert answers == [{"b": KNOWS}, {"b": CANNOT}]

    async def test_a_peer_hears_for_how_long_the_asker_fails(self, agent):
        asked = []

        async def renewed(since):
            asked.append(clock.now() - since)

        asker = await agent("a")
        await agent("b", V4, renewed=renewed)
        await asker.ask({"b": [V4]}, since=clock.now() - 4)
        # On the way, the asker continues to fail: it believes no more than is true.
        assert asked == [pytest.approx(4, abs=0.5)]

    async def test_what_is_said_unasked_counts_from_when_it_was_renewed(self, agent):
        peers, now = await agent("a"), clock.now()
        peers.hear(CanRenew("b", age=2.0))
        assert peers.heard == {}
        assert peers.was_told(since=now - 3, now=now)
        # The message may have been under way for half a second.
        assert not peers.was_told(since=now - 2.4, now=now)
        assert not peers.was_told(since=now - 3, now=now + 4)

    async def test_a_question_that_cannot_be_read_is_not_answered(self, agent, port):
        peer = await agent("b", V4, outcome=False)
        sealed = build_message(KEY, peer="b", kind=OUTAGE, nonce="n", body={"asker": "a"})
        url = f"http://{V4}:{port}{PATH}"
        async with aiohttp.ClientSession() as session, session.post(url, data=sealed) as reply:
            assert reply.status == 503
        assert peer.promised == {}

    async def test_an_asker_does_not_get_its_own_answer_back(self, agent):
        asker = await agent("a", OTHER_V4, outcome=True)
        peer = await agent("b", V4, outcome=False)
        assert await peer.ask({"a": [OTHER_V4]}, since=clock.now() - 5) == {"a": CAN}
        assert await asker.ask({"b": [V4]}, since=clock.now() - 5) == {"b": CANNOT}

    async def test_an_answer_that_was_passed_on_is_not_passed_on_again(self, agent):
        last = await agent("a")
        asker = await agent("d", OTHER_V4, outcome=False)
        between = await agent("b", V4, outcome=False)
        await agent("c", V6, outcome=True)
        await between.ask({"c": [V6]}, since=clock.now() - 5)
        assert await asker.ask({"b": [V4]}, since=clock.now() - 5) == {"b": KNOWS}
        assert await last.ask({"d": [OTHER_V4]}, since=clock.now() - 5) == {"d": CANNOT}

    async def test_a_peer_that_can_no_longer_renew_is_not_passed_on(self, agent):
        outcomes = [0.0, None]

        async def renewed(_since):
            return outcomes.pop(0)

        asker = await agent("a")
        await agent("b", V4, renewed=renewed)
        await asker.ask({"b": [V4]}, since=clock.now() - 5)
        assert list(asker.heard) == ["b"]
        await asker.ask({"b": [V4]}, since=clock.now() - 5)
        assert asker.heard == {}

    async def test_silence_keeps_the_previous_answer(self, agent):
        asker = await agent("a")
        await agent("b", V4, outcome=True)
        await asker.ask({"b": [V4]}, since=clock.now() - 5)
        await asker.ask({"b": []}, since=clock.now() - 5)
        assert list(asker.heard) == ["b"]

    async def test_the_answer_cannot_promises_the_asker_a_full_duration(self, agent):
        asker = await agent("a")
        peer = await agent("b", V4, outcome=False)
        await asker.ask({"b": [V4]}, since=clock.now() - 5)
        assert peer.promised == {"a": TIMING.duration}
        assert peer.askers == ["a"]

    async def test_a_node_for_which_the_askers_lease_expired_answers_knows(self, agent):
        asker = await agent("a")
        peer = await agent("b", V4, outcome=False, may=False)
        assert await asker.ask({"b": [V4]}, since=clock.now() - 5) == {"b": KNOWS}
        assert peer.promised == {}

    @pytest.mark.parametrize("outcome", [True, False])
    async def test_the_answers_can_and_knows_promise_nothing(self, agent, outcome):
        asker = await agent("a")
        peer = await agent("b", V4, outcome=outcome)
        await agent("c", V6, outcome=True)
        await peer.ask({"c": [V6]}, since=clock.now() - 5)
        await asker.ask({"b": [V4]}, since=clock.now() - 5)
        assert peer.promised == {}

    @BOTH
    async def test_a_request_without_a_valid_signature_gets_403(self, agent, address, port):
        peer = await agent("b", address, outcome=False)
        host = f"[{address}]" if address == V6 else address
        url = f"http://{host}:{port}{PATH}"
        async with aiohttp.ClientSession() as session:
            for message in (b"", b"{}", question("b", key=OTHER_KEY), question("c")):
                async with session.post(url, data=message) as reply:
                    text = await reply.text()
                assert reply.status == 403
                assert "signed" in text
                assert '"b"' not in text
        assert peer.promised == {}

    @BOTH
    async def test_the_probes_server_answers_next_to_its_own_endpoints(self, agent, address, port):
        asker, peer = await agent("a"), await agent("b", outcome=True)
        probes = Probes(
            CollectorRegistry(), port=port, is_ready=lambda: True, routes={PATH: peer.handle}
        )
        async with probes:
            assert await asker.ask({"b": [address]}, since=clock.now() - 5) == {"b": CAN}
            host = f"[{address}]" if address == V6 else address
            url = f"http://{host}:{port}/readyz"
            async with aiohttp.ClientSession() as session, session.get(url) as reply:
                assert reply.status == 200

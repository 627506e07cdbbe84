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
from purelb.core.holding.peer_keys import PeerKeys
from purelb_agent.peers.http import PATH, PeerHttp
from purelb_agent.peers.peers import Peers
from purelb_agent.runtime import clock
from purelb_agent.runtime.probes import Probes

pytestmark = pytest.mark.real_time

KIND, SAID = "kind", {"said": True}
KEY, OTHER_KEY = b"sixteen bytes or more", b"another sixteen bytes"
V4, V6 = ip_address("127.0.0.1"), ip_address("::1")
OTHER_V4 = ip_address("127.0.0.2")
BOTH = pytest.mark.parametrize("address", [V4, V6], ids=["v4", "v6"])


def question(peer, *, key=KEY):
    return build_message(key, peer=peer, kind=KIND, nonce="n", body={})


async def never(*_request):
    await asyncio.Event().wait()


@pytest.fixture
async def agent(port):
    """Start agents that ask; those that are given an address also answer there."""
    async with AsyncExitStack() as stack, PeerHttp(port) as http:

        async def start(name, *addresses, key=KEY, also=()):
            peers = Peers(name, lambda: PeerKeys(peers.now or key, also), send=http.send)
            peers.now, peers.asked = None, []

            async def answer(body):
                peers.asked.append(body)
                return SAID

            peers.answers[KIND] = answer
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
    async def test_a_peer_answers_what_it_is_asked(self, agent, address):
        asker, peer = await agent("a"), await agent("b", address)
        assert await asker.ask({"b": [address]}, KIND, {"x": 1}) == {"b": SAID}
        assert peer.asked == [{"x": 1}]

    async def test_two_agents_ask_each_other(self, agent):
        one, other = await agent("a", V4), await agent("b", OTHER_V4, V6)
        assert await asyncio.gather(
            one.ask({"b": [OTHER_V4, V6]}, KIND, {}), other.ask({"a": [V4]}, KIND, {})
        ) == [{"b": SAID}, {"a": SAID}]

    async def test_without_peers_none_is_asked(self, agent):
        asker = await agent("a")
        assert await asker.ask({}, KIND, {}) == {}

    @pytest.mark.parametrize("broken", [V4, V6], ids=["v4", "v6"])
    async def test_one_address_that_answers_is_enough(self, agent, broken, port):
        asker = await agent("a")
        working = V6 if broken == V4 else V4
        await agent("b", working)
        async with serving(never, broken, port):
            before = clock.now()
            assert await asker.ask({"b": [broken, working]}, KIND, {}, seconds=8.0) == {"b": SAID}
            assert clock.now() - before < 4

    async def test_an_invalid_reply_from_one_address_does_not_hide_a_valid_one_from_another(
        self, agent, port
    ):
        asker = await agent("a")
        await agent("b", V6)
        async with serving(garbage(b"?"), V4, port):
            assert await asker.ask({"b": [V4, V6]}, KIND, {}) == {"b": SAID}


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
        assert await asker.ask({"b": [address]}, KIND, {}) == {}

    async def test_a_peer_without_an_address_is_silent(self, agent, address):
        asker = await agent("a")
        assert await asker.ask({"b": []}, KIND, {}) == {}

    async def test_a_peer_that_never_answers_is_silent_at_the_timeout(self, agent, address, port):
        asker = await agent("a")
        async with serving(never, address, port):
            before = clock.now()
            assert await asker.ask({"b": [address]}, KIND, {}, seconds=0.2) == {}
            # Not at the timeout that a question has by default.
            assert 0.2 <= clock.now() - before < 1

    async def test_silent_peers_do_not_hide_one_that_answers(self, agent, address, port):
        asker = await agent("a")
        await agent("b", address)
        async with serving(never, OTHER_V4, port):
            answers = await asker.ask({"b": [address], "c": [OTHER_V4]}, KIND, {})
        assert answers == {"b": SAID}

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
            assert await asker.ask({"b": [address]}, KIND, {}, seconds=0.3) == {}

    async def test_a_server_of_another_protocol_is_silent(self, agent, address, port):
        async def babble(_reader, writer):
            writer.write(b"SSH-2.0-OpenSSH\r\n")
            writer.close()
            await writer.wait_closed()

        asker = await agent("a")
        async with await asyncio.start_server(babble, str(address), port):
            assert await asker.ask({"b": [address]}, KIND, {}) == {}

    async def test_an_agent_with_another_key_is_silent(self, agent, address):
        asker = await agent("a")
        await agent("b", address, key=OTHER_KEY)
        assert await asker.ask({"b": [address]}, KIND, {}) == {}

    async def test_an_agent_that_accepts_the_key_answers_with_it(self, agent, address):
        asker = await agent("a")
        await agent("b", address, key=OTHER_KEY, also=(KEY,))
        assert await asker.ask({"b": [address]}, KIND, {}) == {"b": SAID}

    async def test_the_keys_are_those_of_the_moment(self, agent, address):
        asker = await agent("a")
        peer = await agent("b", address)
        answers = []
        for asks, answered in [(None, None), (OTHER_KEY, None), (OTHER_KEY, OTHER_KEY)]:
            asker.now, peer.now = asks, answered
            answers.append(await asker.ask({"b": [address]}, KIND, {}))
        assert answers == [{"b": SAID}, {}, {"b": SAID}]

    async def test_a_reply_of_another_node_is_silence(self, agent, address):
        asker = await agent("a")
        await agent("c", address)
        assert await asker.ask({"b": [address]}, KIND, {}) == {}

    async def test_a_replayed_reply_is_silence(self, agent, address, port):
        recorded = []

        async def replay(request):
            if not recorded:
                reply = await speaker.handle(request)
                recorded.append(reply.body)
            return web.Response(body=recorded[0])

        asker, speaker = await agent("a"), await agent("b")
        async with serving(replay, address, port):
            assert await asker.ask({"b": [address]}, KIND, {}) == {"b": SAID}
            assert await asker.ask({"b": [address]}, KIND, {}) == {}


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
            answers = await asker.ask(peers, KIND, {}, seconds=5.0)
        assert answers == {}
        assert max(most) == 256

    async def test_a_cancelled_round_of_questions_leaves_no_request(self, agent, port):
        asker = await agent("a")
        async with serving(never, V4, port):
            asking = asyncio.create_task(asker.ask({"b": [V4]}, KIND, {}, seconds=60.0))
            await asyncio.sleep(0.05)
            assert asking_tasks() != set()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            assert asking_tasks() == set()


class TestAnswering:
    @BOTH
    async def test_a_request_without_a_valid_signature_gets_403(self, agent, address, port):
        peer = await agent("b", address)
        host = f"[{address}]" if address == V6 else address
        url = f"http://{host}:{port}{PATH}"
        async with aiohttp.ClientSession() as session:
            for message in (b"", b"{}", question("b", key=OTHER_KEY), question("c")):
                async with session.post(url, data=message) as reply:
                    text = await reply.text()
                assert reply.status == 403
                assert "signed" in text
                assert '"b"' not in text
        assert peer.asked == []

    @BOTH
    async def test_the_probes_server_answers_next_to_its_own_endpoints(self, agent, address, port):
        asker, peer = await agent("a"), await agent("b")
        probes = Probes(
            CollectorRegistry(), port=port, is_ready=lambda: True, routes={PATH: peer.handle}
        )
        async with probes:
            assert await asker.ask({"b": [address]}, KIND, {}) == {"b": SAID}
            host = f"[{address}]" if address == V6 else address
            url = f"http://{host}:{port}/readyz"
            async with aiohttp.ClientSession() as session, session.get(url) as reply:
                assert reply.status == 200

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the health port of a service proxy is taken for, over real sockets; and when it is asked."""

from __future__ import annotations

import asyncio
import socket
from contextlib import asynccontextmanager, suppress
from ipaddress import ip_address
from itertools import pairwise

import pytest
from aiohttp import web

from purelb.core.election.claims import claimed
from purelb.core.election.members import ServiceProxy
from purelb.core.node.service_proxy import Answer, ProxyHealth
from purelb_agent.kube.store import NodeStore
from purelb_agent.node import service_proxy
from purelb_agent.node.service_proxy import ProxyHttp, ProxyWatch

EVERY = ProxyHealth().asked_every


@asynccontextmanager
async def proxy(status=200, *, host="127.0.0.1"):
    """A service proxy that answers with a status; yields its port."""

    async def healthz(_request):
        return web.Response(status=status)

    app = web.Application()
    app.router.add_get("/healthz", healthz)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, host, 0)
    await site.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def ask(port, *addresses):
    async with ProxyHttp(port) as http:
        return await http.ask([ip_address(address) for address in addresses])


@pytest.mark.real_time
class TestAnswer:
    @pytest.mark.parametrize(
        ("status", "answer"),
        [
            (200, Answer.GOOD),
            (503, Answer.BAD),
            (404, Answer.NONE),
            (401, Answer.NONE),
            (302, Answer.NONE),
        ],
    )
    @pytest.mark.parametrize("host", ["127.0.0.1", "::1"], ids=["v4", "v6"])
    async def test_is_the_status(self, host, status, answer):
        async with proxy(status, host=host) as port:
            assert await ask(port) is answer

    async def test_comes_from_the_address_of_the_node_where_it_listens_there_only(self):
        async with proxy(host="127.0.0.2") as port:
            assert await ask(port) is Answer.NONE
            assert await ask(port, "fd00::1", "127.0.0.2") is Answer.GOOD

    async def test_comes_by_one_connection_until_the_other_end_closes_it(self):
        connections = []

        async def serve(reader, writer):
            connections.append(writer)
            with suppress(asyncio.IncompleteReadError):
                while await reader.readuntil(b"\r\n\r\n"):
                    writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
            async with ProxyHttp(server.sockets[0].getsockname()[1]) as http:
                assert [await http.ask([]) for _question in range(3)] == [Answer.GOOD] * 3
                assert len(connections) == 1
                connections[0].close()
                assert await http.ask([]) is Answer.GOOD
            assert len(connections) == 2

    async def test_is_none_where_nothing_listens(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            assert await ask(free.getsockname()[1]) is Answer.NONE

    async def test_is_none_of_a_proxy_that_hangs(self, monkeypatch):
        monkeypatch.setattr(service_proxy, "ANSWERS_WITHIN", 0.1)
        # The kernel accepts connections for it, as for a process that is frozen.
        with socket.create_server(("127.0.0.1", 0)) as frozen:
            assert await ask(frozen.getsockname()[1]) is Answer.NONE

    async def test_is_none_of_a_program_that_speaks_otherwise(self):
        async def greet(_reader, writer):
            writer.write(b"220 mail\r\n")
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        async with server:
            assert await ask(server.sockets[0].getsockname()[1]) is Answer.NONE

    async def test_needs_an_open_session(self):
        with pytest.raises(RuntimeError):
            await ProxyHttp(10256).ask([])


class Answers:
    """Answers as a list says; then waits for ever. `asked` has the time of each question."""

    def __init__(self, *answers):
        self._answers = list(answers)
        self.asked = []

    async def ask(self, _addresses):
        self.asked.append(asyncio.get_running_loop().time())
        if not self._answers:
            await asyncio.Event().wait()
        return self._answers.pop(0)


async def watched(*answers):
    """The store after these answers, and when they were asked for."""
    store = NodeStore("n1", classes=claimed(unclassed=True), drains=True)
    http = Answers(*answers)
    task = asyncio.create_task(ProxyWatch(http, store, "n1").run())
    await asyncio.sleep(len(answers) * EVERY + 1)
    task.cancel()
    return store, http.asked


async def test_the_store_has_what_the_answers_mean():
    store, asked = await watched(Answer.GOOD, *[Answer.NONE] * 4)
    assert store.service_proxy is ServiceProxy.ILL
    pauses = {later - earlier for earlier, later in pairwise(asked)}
    assert pauses == {EVERY}


async def test_without_a_service_proxy_it_is_absent():
    store, _asked = await watched(Answer.NONE)
    assert store.service_proxy is ServiceProxy.ABSENT

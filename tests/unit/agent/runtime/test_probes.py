# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack

import aiohttp
import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, Gauge

from purelb.core.errors import SettingError
from purelb_agent.runtime.probes import Probes

pytestmark = pytest.mark.real_time


@pytest.fixture
async def get(port):
    """GET a path; returns the status and the text."""
    async with aiohttp.ClientSession() as session:

        async def get(path, host="127.0.0.1"):
            async with session.get(f"http://{host}:{port}{path}") as response:
                return response.status, await response.text()

        yield get


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"], ids=["v4", "v6"])
@pytest.mark.parametrize("is_ready", [True, False])
async def test_a_program_is_healthy_while_it_is_ready_or_not(get, port, host, is_ready):
    async with Probes(CollectorRegistry(), port=port, is_ready=lambda: is_ready):
        assert (await get("/healthz", host))[0] == 200
        assert (await get("/readyz", host))[0] == (200 if is_ready else 503)


async def test_metrics_are_those_of_the_registry(get, port):
    registry = CollectorRegistry()
    Gauge("answer", "Of a test.", registry=registry).set(42)
    async with Probes(registry, port=port, is_ready=lambda: True):
        assert await get("/metrics") == (
            200,
            "# HELP answer Of a test.\n# TYPE answer gauge\nanswer 42.0\n",
        )


async def test_a_program_can_add_routes(get, port):
    async def handle(_request):
        return web.Response(text="more")

    routes = {"/more": handle}
    async with Probes(CollectorRegistry(), port=port, is_ready=lambda: True, routes=routes):
        assert await get("/more") == (200, "more")
        assert (await get("/less"))[0] == 404


@pytest.mark.parametrize(("family", "host"), [("AF_INET", "127.0.0.1"), ("AF_INET6", "::1")])
async def test_many_that_connect_while_the_program_is_busy_are_answered(port, family, host):
    request, asking = b"GET /healthz HTTP/1.0\r\n\r\n", []
    with ExitStack() as stack:
        async with Probes(CollectorRegistry(), port=port, is_ready=lambda: True):
            for _number in range(400):
                asking.append(stack.enter_context(socket.socket(getattr(socket, family))))
                # Without a place in the backlog, the kernel tries again only after a second.
                asking[-1].settimeout(0.5)
                asking[-1].connect((host, port))
                asking[-1].sendall(request)
                asking[-1].setblocking(False)
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(5):
                heads = [await loop.sock_recv(one, 12) for one in asking]
    assert set(heads) == {b"HTTP/1.0 200"}


async def test_a_taken_port_is_a_wrong_setting(port):
    address = ("::", port)
    with socket.create_server(address, family=socket.AF_INET6, dualstack_ipv6=True):
        probes = Probes(CollectorRegistry(), port=port, is_ready=lambda: True)
        with pytest.raises(SettingError, match=rf"port {port} .*--metrics-port"):
            await probes.__aenter__()


async def test_the_port_is_free_after_the_end(port):
    for _turn in range(2):
        async with Probes(CollectorRegistry(), port=port, is_ready=lambda: True):
            pass

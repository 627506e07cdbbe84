# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The token of requests to a server that accepts one token at a time, over TLS."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import AsyncMock

import pytest
from aiohttp import web

from purelb_agent.kube.client import ApiError, Kube

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.parametrize("host", ["127.0.0.1", "::1"], ids=["v4", "v6"]),
]
PATH = "/api/v1/services"


class Server:
    """Refuses requests without the token that it accepts."""

    def __init__(self, token):
        self.accepts = token

    async def handle(self, request):
        if request.headers["Authorization"] != f"Bearer {self.accepts}":
            return web.json_response({"message": "Unauthorized"}, status=401)
        if "watch" not in request.query:
            return web.json_response({"items": []})
        return web.Response(body=b'{"type": "ADDED", "object": {}}\n')


@pytest.fixture
async def server(host, serve):
    server, app = Server("first"), web.Application()
    app.router.add_get(PATH, server.handle)
    server.access = await serve(app, host=host)
    return server


@pytest.fixture
def token_file(tmp_path):
    file = tmp_path / "token"
    file.write_text("first\n")
    return file


@pytest.fixture
async def kube(server, token_file):
    async with Kube(replace(server.access, token_file=token_file)) as opened:
        yield opened


async def watched(kube):
    return [event["type"] async for event in kube.watch(PATH, {}, on_open=AsyncMock())]


async def test_the_token_is_sent_without_its_newline(kube):
    assert await kube.request("GET", PATH) == {"items": []}
    assert await watched(kube) == ["ADDED"]


async def test_a_rotated_token_is_used_by_the_next_request(kube, server, token_file):
    await kube.request("GET", PATH)
    server.accepts = "second"
    with pytest.raises(ApiError, match="Unauthorized") as refused:
        await kube.request("GET", PATH)
    assert refused.value.status == 401
    with pytest.raises(ApiError, match="Unauthorized"):
        await watched(kube)
    token_file.write_text("second")
    assert await kube.request("GET", PATH) == {"items": []}
    assert await watched(kube) == ["ADDED"]


@pytest.mark.parametrize(
    "content", [b"two\nlines", b"nul\0byte", b"\xff\xfe", None], ids=["lines", "nul", "bin", "none"]
)
async def test_requests_fail_while_the_file_contains_no_token(kube, token_file, content):
    if content is None:
        token_file.unlink()
    else:
        token_file.write_bytes(content)
    for send in (kube.request("GET", PATH), watched(kube)):
        with pytest.raises(ApiError, match="token"):
            await send
    token_file.write_text("first")
    assert await kube.request("GET", PATH) == {"items": []}

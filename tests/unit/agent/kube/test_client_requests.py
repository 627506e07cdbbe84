# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Requests and watches of a server that answers as a test says, over TLS."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest
from aiohttp import web

from purelb.core.errors import SettingError
from purelb_agent.kube.client import ApiError, Kube
from purelb_agent.kube.http import PodAccess

PATH = "/api/v1/services"
STATUS = {"kind": "Status", "message": "services is forbidden", "code": 403}


class Server:
    """Answers each request with `self.answer`, and keeps what came."""

    def __init__(self):
        self.answer, self.seen = None, []

    async def handle(self, request):
        self.seen.append((request, await request.text()))
        return await self.answer(request)


@pytest.fixture
async def server(serve):
    server, app = Server(), web.Application()
    app.router.add_route("*", PATH, server.handle)
    server.access = await serve(app)
    return server


@pytest.fixture
async def kube(server):
    async with Kube(server.access) as opened:
        yield opened


def answers(**more):
    async def answer(_request):
        return web.Response(**more)

    return answer


async def hangs(_request):
    await asyncio.Event().wait()


@pytest.mark.real_time
class TestRequests:
    @pytest.mark.parametrize(
        ("method", "kind"),
        [("POST", "application/json"), ("PATCH", "application/merge-patch+json")],
    )
    async def test_a_body_is_json_and_that_of_a_patch_a_merge_patch(
        self, kube, server, method, kind
    ):
        server.answer = answers(text='{"a": 1}')
        answer = await kube.request(method, PATH, {"n": 1}, params={"dryRun": "All"})
        assert answer == {"a": 1}
        ((request, body),) = server.seen
        assert (request.method, request.content_type) == (method, kind)
        assert (json.loads(body), dict(request.query)) == ({"n": 1}, {"dryRun": "All"})
        assert "Content-Length" in request.headers

    async def test_a_request_without_a_body_has_no_content_type(self, kube, server):
        server.answer = answers(text="{}")
        await kube.request("DELETE", PATH)
        assert "Content-Type" not in server.seen[0][0].headers

    @pytest.mark.parametrize(
        ("status", "text", "message"),
        [
            (403, json.dumps(STATUS), "DELETE /api/v1/services: services is forbidden"),
            (502, "<html>Bad", "DELETE /api/v1/services: HTTP 502: <html>Bad"),
            (500, "[]", "DELETE /api/v1/services: HTTP 500: []"),
            (500, "{}", "DELETE /api/v1/services: HTTP 500: {}"),
        ],
        ids=["status object", "proxy", "list", "no message"],
    )
    async def test_a_refusal_has_its_status_and_the_servers_message(
        self, kube, server, status, text, message
    ):
        server.answer = answers(status=status, text=text)
        with pytest.raises(ApiError) as refused:
            await kube.request("DELETE", PATH)
        assert (refused.value.status, str(refused.value)) == (status, message)

    async def test_a_response_that_is_not_json_is_an_error_without_a_status(self, kube, server):
        server.answer = answers(text="<html>" + "x" * 200)
        with pytest.raises(ApiError, match=r"^/api/v1/services: .*'<html>x{74}'$") as refused:
            await kube.request("GET", PATH)
        assert refused.value.status == 0

    async def test_a_request_ends_after_its_seconds(self, kube, server):
        server.answer = hangs
        with pytest.raises(ApiError, match=r"GET /api/v1/services: no answer within 0\.05 s"):
            await kube.request("GET", PATH, seconds=0.05)

    async def test_a_server_out_of_reach_is_an_error_without_a_status(self, server):
        # The discard port of the loopback interface: nothing listens there.
        async with Kube(replace(server.access, url="https://127.0.0.1:9")) as kube:
            with pytest.raises(ApiError, match=f"GET {PATH}: ") as refused:
                await kube.request("GET", PATH)
            assert refused.value.status == 0
            with pytest.raises(ApiError, match=f"^{PATH}: ") as refused:
                await anext(kube.watch(PATH, {}, on_open=AsyncMock()))
            assert refused.value.status == 0

    async def test_a_client_that_is_not_open_cannot_send(self, server):
        kube = Kube(server.access)
        with pytest.raises(RuntimeError, match="not open"):
            await kube.request("GET", PATH)
        await kube.__aexit__()


@pytest.mark.real_time
class TestWatches:
    @pytest.fixture
    def watch(self, kube):
        """Watch to the end of the stream; returns whether it opened, and the events."""
        opened, events = [], []

        async def note():
            opened.append(True)

        async def watch():
            watching = kube.watch(PATH, {"a": "b"}, on_open=note)
            async for event in watching:
                events.append(event)  # noqa: PERF401 - kept if the stream breaks

        watch.opened, watch.events = opened, events
        return watch

    def streams(self, *chunks, breaks=False):
        async def answer(request):
            response = web.StreamResponse()
            await response.prepare(request)
            for chunk in chunks:
                await response.write(chunk)
                await asyncio.sleep(0.005)
            if breaks:
                request.transport.abort()
            return response

        return answer

    async def test_events_are_lines_however_they_are_cut(self, watch, server):
        long = {"type": "ADDED", "object": {"data": "x" * 300_000}}
        line = json.dumps(long).encode() + b"\n"
        server.answer = self.streams(b'{"n": 1}\n{"n"', b": 2}\n", line[:99], line[99:])
        await watch()
        assert watch.events == [{"n": 1}, {"n": 2}, long]
        assert watch.opened == [True]
        assert dict(server.seen[0][0].query) == {"a": "b", "watch": "1"}

    async def test_a_refused_watch_does_not_open(self, watch, server):
        server.answer = answers(status=410, text=json.dumps({"message": "too old"}))
        with pytest.raises(ApiError, match=f"^{PATH}: too old$") as refused:
            await watch()
        assert refused.value.status == 410
        assert watch.opened == []

    async def test_a_stream_that_breaks_is_an_error_after_its_events(self, watch, server):
        server.answer = self.streams(b'{"n": 1}\n', breaks=True)
        with pytest.raises(ApiError) as broken:
            await watch()
        assert broken.value.status == 0
        assert watch.events == [{"n": 1}]

    async def test_a_line_that_is_not_json_is_an_error(self, watch, server):
        server.answer = self.streams(b"<html>\n")
        with pytest.raises(ApiError, match="JSON"):
            await watch()


class TestAccess:
    @pytest.fixture
    def account(self, tmp_path):
        (tmp_path / "token").write_text("t")
        return tmp_path

    @pytest.mark.parametrize(
        ("host", "url"),
        [("10.0.0.1", "https://10.0.0.1:6443"), ("fd00::1", "https://[fd00::1]:6443")],
        ids=["v4", "v6"],
    )
    def test_a_pod_finds_the_server_in_its_environment(self, account, host, url):
        environ = {"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "6443"}
        expected = PodAccess(url, account / "ca.crt", account / "token")
        assert PodAccess.in_cluster(environ, account) == expected

    def test_the_port_is_443_by_default(self, account):
        access = PodAccess.in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, account)
        assert access.url == "https://10.0.0.1:443"

    def test_a_program_outside_of_a_pod_has_a_wrong_setting(self, account):
        with pytest.raises(SettingError, match="KUBERNETES_SERVICE_HOST"):
            PodAccess.in_cluster({}, account)
        (account / "token").unlink()
        with pytest.raises(SettingError, match="token is missing"):
            PodAccess.in_cluster({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, account)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A NetBox that is unreachable, untrusted, something else, or changed by others concurrently."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
import subprocess
import time

import pytest
from aiohttp import web

from purelb.core.allocation.ipam import IpamRequest
from purelb.core.model import NetBoxSource, ServiceGroup, ServiceKey
from purelb_agent.ipam.netbox.client import Session
from purelb_agent.ipam.netbox.source import NetBox
from purelb_agent.ipam.port import IpamError
from tests.support.netbox.standin import Serving, StandIn

WEB = ServiceKey("default", "web")
hosts = pytest.mark.parametrize("host", ["127.0.0.1", "::1"], ids=["v4", "v6"])
pytestmark = pytest.mark.timeout(60)
both_kinds = pytest.mark.parametrize("has_etags", [True, False], ids=["etags", "no etags"])


@pytest.fixture
def standin():
    made = StandIn()
    tenant = made.add_tenant("Lab", "lab")
    for address in ("10.91.1.5/24", "10.91.1.6/24"):
        made.add_address(tenant, address)
    return made


@pytest.fixture
async def netbox(tmp_path, standin):
    (tmp_path / "token").write_text(standin.tokens["old"])
    # A busy machine needs more than a second for several requests.
    made = NetBox(tmp_path, cluster="c1", seconds=20)
    yield made
    await made.close()


@pytest.fixture
async def hasty(tmp_path, standin):
    """As `netbox`, for tests of its timeout."""
    (tmp_path / "token").write_text(standin.tokens["old"])
    made = NetBox(tmp_path, cluster="c1", seconds=1.0)
    yield made
    await made.close()


@pytest.fixture(scope="module")
def pki(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pki")
    names = "subjectAltName=IP:127.0.0.1,IP:::1"
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-x509"]
    argv = ["openssl", "req", *made, "-subj", "/CN=netbox", "-addext", names]
    files = ["-keyout", folder / "key", "-out", folder / "crt"]
    subprocess.run([*argv, *files], check=True, capture_output=True)
    return folder


def group(url):
    return ServiceGroup("elsewhere", source=NetBoxSource(url, "lab", allows_http=True))


async def allocate(netbox, url):
    (leased,) = await netbox.allocate(group(url), IpamRequest(WEB, families=(4,)))
    return str(leased)


@both_kinds
async def test_address_taken_by_another_client_first_is_not_used(standin, netbox, has_etags):
    standin.has_etags = has_etags

    def take(number):
        standin.change(number, status="active", description="purelb c2 default/web")

    async with Serving(standin.app()) as serving:
        if has_etags:
            standin.before_patch = take
            assert await allocate(netbox, serving.url) == "10.91.1.6/24"
        else:
            # Without conditional changes the later writer wins, and the earlier one notices.
            loop = asyncio.get_running_loop()
            standin.before_patch = lambda number: loop.call_later(0.1, take, number)
            assert await allocate(netbox, serving.url) == "10.91.1.6/24"
    assert standin.addresses[1]["description"] == "purelb c2 default/web"


async def test_service_that_joins_during_a_release_keeps_the_address(standin, netbox):
    async with Serving(standin.app()) as serving:
        await allocate(netbox, serving.url)

        def join(number):
            standin.change(number, description="purelb c1 default/web default/api")

        standin.before_patch = join
        with pytest.raises(IpamError, match="another client is changing") as refused:
            await netbox.release(group(serving.url), WEB, None)
        assert not refused.value.is_permanent
        await netbox.release(group(serving.url), WEB, None)
    assert standin.addresses[1]["description"] == "purelb c1 default/api"


async def test_lost_answer_does_not_leak_an_address(standin, netbox, monkeypatch):
    """The change succeeds, but the allocator gets no answer."""
    lost = asyncio.Event()

    @web.middleware
    async def lose(request, handler):
        answer = await handler(request)
        if request.method == "PATCH" and not lost.is_set():
            lost.set()
            request.transport.abort()
        return answer

    app = standin.app()
    app.middlewares.insert(0, lose)
    async with Serving(app) as serving:
        with pytest.raises(IpamError, match="cannot be reached") as refused:
            await allocate(netbox, serving.url)
        assert not refused.value.is_permanent
        assert standin.addresses[1]["status"]["value"] == "active"
        assert await allocate(netbox, serving.url) == "10.91.1.5/24"
    assert standin.addresses[2]["status"]["value"] == "reserved"


@hosts
async def test_private_authority_is_trusted_once_the_secret_has_it(
    standin, netbox, host, pki, tmp_path
):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pki / "crt", pki / "key")
    async with Serving(standin.app(), host=host, tls=tls) as serving:
        with pytest.raises(IpamError, match=r"not trusted \(.*CERTIFICATE_VERIFY.*ca\.crt"):
            await allocate(netbox, serving.url)
        (tmp_path / "ca.crt").write_text("nonsense")
        with pytest.raises(IpamError, match=r"ca\.crt"):
            await allocate(netbox, serving.url)
        (tmp_path / "ca.crt").write_bytes((pki / "crt").read_bytes())
        assert await allocate(netbox, serving.url) == "10.91.1.5/24"


@hosts
async def test_unreachable_netbox_is_retried_later(netbox, host):
    name = f"[{host}]" if ":" in host else host
    with pytest.raises(IpamError, match=r"cannot be reached: .*refused") as refused:
        await allocate(netbox, f"http://{name}:1")
    assert not refused.value.is_permanent
    assert str(refused.value).startswith(f"ServiceGroup elsewhere: NetBox http://{name}:1: ")


async def test_unresolvable_name_is_reported(hasty):
    with pytest.raises(IpamError, match=r"cannot be reached|no answer within") as refused:
        await allocate(hasty, "http://netbox.invalid")
    assert not refused.value.is_permanent


async def test_silent_server_times_out(hasty):
    with socket.create_server(("127.0.0.1", 0)) as server:
        began = time.monotonic()
        with pytest.raises(IpamError, match="no answer within 1 s") as refused:
            await allocate(hasty, f"http://127.0.0.1:{server.getsockname()[1]}")
    # The server never answers; any other timeout of ours is longer.
    assert time.monotonic() - began < 4.0
    assert not refused.value.is_permanent


async def test_slow_server_times_out_and_blocks_no_other_request(standin, netbox, tmp_path):
    enough, ended = asyncio.Event(), asyncio.Event()

    async def drip(_reader, writer):
        left = 1000
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {left}\r\n\r\n".encode())
        while not enough.is_set() and left > 1:
            writer.write(b" ")
            left -= 1
            await asyncio.sleep(0.1)
        writer.write(b" " * left)
        writer.close()
        ended.set()

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    began = time.monotonic()
    # Long enough for the other request on a busy machine.
    patient = NetBox(tmp_path, cluster="c1", seconds=3.0)
    with pytest.raises(IpamError, match="no answer within 3 s"):
        await allocate(patient, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
    # Sooner than a call ends by default.
    assert time.monotonic() - began < 5.0
    async with Serving(standin.app()) as serving:
        assert await allocate(patient, serving.url) == "10.91.1.5/24"
    # At any speed of the machine: the first answer is still on its way.
    assert not ended.is_set()
    enough.set()
    await ended.wait()
    await patient.close()
    server.close()


async def test_nothing_is_written_after_the_timeout(standin, hasty):
    """The caller has been told that the request failed, and may request another address."""

    @web.middleware
    async def slow(request, handler):
        await asyncio.sleep(0.4)
        return await handler(request)

    app = standin.app()
    app.middlewares.insert(0, slow)
    async with Serving(app) as serving:
        with pytest.raises(IpamError, match="no answer within 1 s"):
            await allocate(hasty, serving.url)
        await asyncio.sleep(0.8)
    assert not [r for r in standin.requests if r.startswith("PATCH")]


async def answering(status, *, text="", headers=None):
    async def handle(_request):
        return web.Response(status=status, text=text, headers=headers)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    return app


@pytest.mark.parametrize(
    ("status", "text", "problem", "is_permanent"),
    [
        (200, "<html>Welcome</html>", r"no NetBox: write the address", True),
        (200, '"text"', r"not answer as a NetBox does .*: write the address", True),
        (200, '{"results": [{}], "count": 1, "next": null}', r"not answer as a NetBox does", True),
        (401, '{"detail": "Who?"}', r"answers 401: Who\?; put a NetBox token", True),
        (404, "<html>", r"answers 404: Not Found; write the address", True),
        (429, "slowly", r"answers 429: Too Many Requests", False),
        (500, '{"error": "x"}', r"answers 500: ", False),
        (502, "<html>", r"answers 502: Bad Gateway", False),
        (503, "", r"answers 503: ", False),
    ],
)
async def test_answer_of_another_server_is_reported_with_the_remedy(
    netbox, status, text, problem, is_permanent
):
    async with Serving(await answering(status, text=text)) as serving:
        with pytest.raises(IpamError, match=problem) as refused:
            await allocate(netbox, serving.url)
    assert refused.value.is_permanent is is_permanent


async def test_redirect_is_reported_and_not_followed(netbox, standin):
    """Following it would turn a change into a read and send the token to another server."""
    app = await answering(301, headers={"Location": "https://netbox.example.com/api/"})
    async with Serving(app) as serving:
        with pytest.raises(IpamError, match=r"redirects to https://netbox\.example\.com/api/: wr"):
            await allocate(netbox, serving.url)


@hosts
@pytest.mark.parametrize("by", ["redirect", "next page"])
async def test_another_server_without_tls_gets_no_token(standin, netbox, host, pki, tmp_path, by):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pki / "crt", pki / "key")
    (tmp_path / "ca.crt").write_bytes((pki / "crt").read_bytes())
    async with Serving(standin.app(), host=host) as clear:
        there = f"{clear.url}/api/?offset=1"
        page = json.dumps({"count": 2, "next": there, "previous": None, "results": []})
        is_page = by == "next page"
        headers = {} if is_page else {"Location": there}
        app = await answering(200 if is_page else 307, text=page, headers=headers)
        async with Serving(app, host=host, tls=tls) as serving:
            with pytest.raises(IpamError, match=r"(redirects to|continues at) http://") as refused:
                await allocate(netbox, serving.url)
    assert refused.value.is_permanent
    assert standin.requests == []


@pytest.mark.parametrize(
    "url",
    ["http://nb.example.com/api/", "https://nb.example.com:8443/api/", "https://example.com/api/"],
    ids=["scheme", "port", "host"],
)
def test_nothing_is_sent_to_another_server(url):
    with (
        Session("https://nb.example.com", verify=True, seconds=5) as session,
        pytest.raises(IpamError, match="another server"),
    ):
        session.request("GET", url)


@pytest.mark.parametrize("url", ["https://127.0.0.1:99999", "https://[::1"], ids=["port", "host"])
async def test_url_that_cannot_be_read_is_an_error_of_the_group(netbox, url):
    with pytest.raises(IpamError) as refused:
        await allocate(netbox, url)
    assert refused.value.is_permanent


async def test_proxy_of_the_environment_is_used_unless_excluded(netbox, standin, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    async with Serving(standin.app()) as serving:
        monkeypatch.setenv("no_proxy", "")
        with pytest.raises(IpamError, match=r"cannot be reached: .*refused"):
            await allocate(netbox, serving.url)
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        assert await allocate(netbox, serving.url) == "10.91.1.5/24"

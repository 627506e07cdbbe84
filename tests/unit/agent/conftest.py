# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Virtual time and leak checks for every test, and a TLS server for tests in real time."""

from __future__ import annotations

import socket
import ssl
import subprocess

import pytest
from aiohttp import web

from purelb_agent.kube.http import PodAccess
from tests.support.agent.plugin import (
    leak_check,
    no_leaks,
    pytest_asyncio_loop_factories,
    virtual_clock,
)

# What pytest finds here by name.
__all__ = ["leak_check", "no_leaks", "pytest_asyncio_loop_factories", "virtual_clock"]


def _make_certificate(folder):
    names = "subjectAltName=IP:127.0.0.1,IP:::1"
    made = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-x509"]
    argv = ["openssl", "req", *made, "-subj", "/CN=api", "-addext", names]
    files = ["-keyout", folder / "key", "-out", folder / "crt"]
    subprocess.run([*argv, *files], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="session")
def certificate(tmp_path_factory):
    """The folder of a server's key and certificate, and of a client's token."""
    folder = _make_certificate(tmp_path_factory.mktemp("tls"))
    (folder / "token").write_text("token\n")
    return folder


@pytest.fixture(scope="session")
def other_certificate(tmp_path_factory):
    """The folder of another key and certificate."""
    return _make_certificate(tmp_path_factory.mktemp("other-tls"))


@pytest.fixture
def port():
    """A port to listen on, which no connection of this machine is given until the test is over."""
    with socket.socket(socket.AF_INET6) as kept:
        # Bound, not listening: who asks for this port gets it, and all others get another.
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        kept.bind(("::", 0))
        yield kept.getsockname()[1]


@pytest.fixture
async def serve(certificate):
    """Serve an application until the test is over; how clients get at it."""
    runners = []

    async def begin(app, *, host="127.0.0.1"):
        # A handler ends when its client is gone: the leak check finds every one that continues.
        runner = web.AppRunner(app, shutdown_timeout=0.1, handler_cancellation=True)
        runners.append(runner)
        await runner.setup()
        tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        tls.load_cert_chain(certificate / "crt", certificate / "key")
        await web.TCPSite(runner, host, 0, ssl_context=tls).start()
        name = f"[{host}]" if ":" in host else host
        url = f"https://{name}:{runner.addresses[0][1]}"
        return PodAccess(url, certificate / "crt", certificate / "token")

    yield begin
    for runner in runners:
        await runner.cleanup()

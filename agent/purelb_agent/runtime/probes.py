# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""HTTP endpoints of both programs: /metrics, /healthz, /readyz, and the routes a program adds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Self

from aiohttp import web
from aiohttp.typedefs import Handler
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from purelb.core.errors import SettingError

# How many connections the kernel keeps until the program accepts them: all agents of a large
# cluster may ask one at once. Who finds no place is silent for a second. The kernel caps it by
# net.core.somaxconn, 4096 by default, and each costs it 2 to 3 kB.
BACKLOG = 1024


class Probes:
    """HTTP server on all addresses of the host; an async context manager."""

    def __init__(
        self,
        registry: CollectorRegistry,
        *,
        port: int,
        is_ready: Callable[[], bool],
        routes: Mapping[str, Handler] = MappingProxyType({}),
    ) -> None:
        self._registry = registry
        self._port = port
        self._is_ready = is_ready
        app = web.Application()
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_get("/readyz", self._readyz)
        for path, handler in routes.items():
            app.router.add_get(path, handler)
            app.router.add_post(path, handler)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.Response(
            body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST}
        )

    async def _healthz(self, _request: web.Request) -> web.Response:
        """Return 200: an event loop that answers is alive."""
        return web.Response(text="ok\n")

    async def _readyz(self, _request: web.Request) -> web.Response:
        if self._is_ready():
            return web.Response(text="ok\n")
        return web.Response(status=503, text="not ready: the log says what was done last\n")

    async def __aenter__(self) -> Self:
        """Start to listen; SettingError if the port is taken."""
        await self._runner.setup()
        try:
            # No address means every address of both families.
            await web.TCPSite(self._runner, None, self._port, backlog=BACKLOG).start()
        except OSError as error:
            await self._runner.cleanup()
            raise SettingError(
                f"port {self._port} cannot be opened ({error.strerror or error}): free it, or "
                "give another one with --metrics-port"
            ) from error
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        await self._runner.cleanup()

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Webhook that converts objects between API versions for the API server.

Every replica serves it, leader or not, because a conversion needs nothing but its request. The
rules are in core/migration/convert. An invalid request gets an error. Without a usable certificate
nothing is served, and the rest of the program continues.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import ssl
from pathlib import Path
from typing import Any

from aiohttp import web

from purelb.core.errors import ObjectError, SettingError
from purelb.core.migration.convert import convert
from purelb.core.names import API_GROUP
from purelb_agent.allocator.metrics import ConversionMetrics
from purelb_agent.runtime import log

PORT = 7473
PATH = "/convert"
# Where the role mounts the Secret with the certificate, its key and the authority.
CERTIFICATE = Path("/etc/purelb/conversion")
# A kubelet takes about a minute to bring a changed Secret to its Pods.
LOOK_SECONDS = 10.0
_REVIEW = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview"}
# The API server sends a whole list at once; thousands of groups are a few megabytes.
_LARGEST = 32 * 2**20
# People read the message: the first few problems are enough.
_MOST_PROBLEMS = 5


class ReviewError(Exception):
    """The request is not a ConversionReview."""


def answer(review: Any) -> dict[str, Any]:
    """Return the review with its objects in the requested version, or with a failure."""
    if not isinstance(review, dict) or any(review.get(k) != v for k, v in _REVIEW.items()):
        raise ReviewError("send a ConversionReview of apiextensions.k8s.io/v1")
    request = review.get("request")
    if not isinstance(request, dict):
        raise ReviewError("request: must be an object")
    for field, kind in (("uid", str), ("desiredAPIVersion", str), ("objects", list)):
        if not isinstance(request.get(field), kind):
            raise ReviewError(f"request.{field}: must be a {kind.__name__}")
    version = request["desiredAPIVersion"].removeprefix(f"{API_GROUP}/")
    converted, problems = _converted(request["objects"], version)
    result = {"status": "Failure", "message": "; ".join(problems[:_MOST_PROBLEMS])}
    return {
        **_REVIEW,
        "response": {
            "uid": request["uid"],
            # All or nothing: the API server does not accept part of a list.
            "convertedObjects": [] if problems else converted,
            "result": result if problems else {"status": "Success"},
        },
    }


def _converted(objects: list[Any], version: str) -> tuple[list[dict[str, Any]], list[str]]:
    converted, problems = [], []
    for number, body in enumerate(objects):
        if not isinstance(body, dict):
            problems.append(f"request.objects[{number}]: must be an object")
            continue
        try:
            converted.append(convert(body, to=version))
        except ObjectError as error:
            problems.append(str(error))
    return converted, problems


class Conversion:
    """The webhook server; its certificate may change while it runs."""

    def __init__(
        self, metrics: ConversionMetrics, *, folder: Path = CERTIFICATE, port: int = PORT
    ) -> None:
        self._metrics = metrics
        self._folder = folder
        self._port = port
        self._context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self._digest = b""
        self._problem = ""
        app = web.Application(client_max_size=_LARGEST)
        app.router.add_post(PATH, self._handle)
        self._runner = web.AppRunner(app, access_log=None, handle_signals=False)

    async def run(self) -> None:
        """Serve as soon as there is a certificate, and reload it when it changes."""
        await self._runner.setup()
        is_serving = False
        try:
            while True:
                self._load_certificate()
                if self._digest and not is_serving:
                    await self._listen()
                    is_serving = True
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            await self._runner.cleanup()

    def _load_certificate(self) -> None:
        """Load a new certificate for new connections; log an unusable one and keep the old."""
        # Follow the links of the mounted Secret to the folder where both files are of one version.
        here = (self._folder / "tls.crt").resolve().parent
        chain, key = here / "tls.crt", here / "tls.key"
        try:
            digest = hashlib.sha256(chain.read_bytes() + key.read_bytes()).digest()
            if digest == self._digest:
                return
            # Try another context first: a failure would leave half of the pair in this one.
            for context in (ssl.create_default_context(ssl.Purpose.CLIENT_AUTH), self._context):
                context.load_cert_chain(chain, key, password="")  # never prompt for one
        except OSError as error:
            if str(error) != self._problem:
                log.warning("conversionCertificate", folder=self._folder, error=error)
            self._problem = str(error)
            return
        self._digest, self._problem = digest, ""
        self._show_end(here / "ca.crt")
        log.info("conversionCertificate", folder=self._folder)

    def _show_end(self, authority: Path) -> None:
        """Show when the certificate ends: with its authority, as the role creates both."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(authority)
        except OSError:
            return  # not created by the role: its owner monitors it
        ends = [ssl.cert_time_to_seconds(str(c["notAfter"])) for c in context.get_ca_certs()]
        self._metrics.show_certificate_end(max(ends, default=0))

    async def _listen(self) -> None:
        try:
            # No address means every address of both families.
            site = web.TCPSite(self._runner, None, self._port, ssl_context=self._context)
            await site.start()
        except OSError as error:
            raise SettingError(
                f"port {self._port} cannot be opened ({error.strerror or error}): free it"
            ) from error

    async def _handle(self, request: web.Request) -> web.Response:
        body = await request.read()
        try:
            reviewed = answer(json.loads(body))
            text = json.dumps(reviewed)
        except ReviewError as error:
            return web.Response(status=400, text=f"{error}\n")
        except (ValueError, RecursionError):
            return web.Response(status=400, text="this is no JSON that can be read\n")
        self._count(reviewed["response"])
        return web.Response(text=text, content_type="application/json")

    def _count(self, response: dict[str, Any]) -> None:
        if response["result"]["status"] == "Success":
            self._metrics.count_converted(len(response["convertedObjects"]))
        else:
            self._metrics.count_refused()
            log.warning("conversionRefused", error=response["result"]["message"])

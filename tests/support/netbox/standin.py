# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A fake of the part of NetBox's REST API that an allocator uses.

The same tests run against this and a real NetBox (server.py), so both answer alike: bodies, status
codes, filters, pages, tokens of both formats, conditional changes.
"""

from __future__ import annotations

import asyncio
import sys
from dataclasses import dataclass, field
from ipaddress import ip_interface

from aiohttp import web

STATUSES = ("active", "reserved", "deprecated", "dhcp", "slaac")
FORBIDDEN = {"detail": "You do not have permission to perform this action."}


@dataclass
class StandIn:
    """The state of the server; `tokens` has two formats with all permissions, and `powerless`."""

    tokens: dict[str, str] = field(
        default_factory=lambda: {
            "old": "a" * 40,
            "new": "nbt_Ab3dEf.0123456789abcdef",
            "powerless": "b" * 40,
        }
    )
    has_etags: bool = True
    largest_page: int = 1000
    tenants: dict[int, dict] = field(default_factory=dict)
    addresses: dict[int, dict] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    url: str = ""
    # Called with an address's number before a change of it, to simulate a concurrent client.
    before_patch: object = None
    _version: int = 0

    def add_tenant(self, name, slug):
        """Create a tenant; return its number."""
        number = len(self.tenants) + 1
        self.tenants[number] = {"id": number, "name": name, "slug": slug}
        return number

    def add_address(self, tenant, address, status="reserved", description=""):
        """Create an address; return its number."""
        number = len(self.addresses) + 1
        self.addresses[number] = {
            "id": number,
            "url": f"{self.url}/api/ipam/ip-addresses/{number}/",
            "family": {"value": ip_interface(address).version},
            "address": address,
            "tenant": self.tenants[tenant],
            "status": {"value": status, "label": status.capitalize()},
            "description": description,
        }
        self._touch(number)
        return number

    def change(self, number, **fields):
        """Change an address as another client would."""
        record = self.addresses[number]
        if "status" in fields:
            status = fields.pop("status")
            record["status"] = {"value": status, "label": status.capitalize()}
        record.update(fields)
        self._touch(number)

    def _touch(self, number):
        self._version += 1
        self.addresses[number]["last_updated"] = f"2026-01-01T00:00:00.{self._version:06}Z"

    def headers(self, record):
        """Return the headers with a record's version."""
        return {"ETag": f'W/"{record["last_updated"]}"'} if self.has_etags else {}

    def app(self):
        """Return the application to serve."""
        app = web.Application(middlewares=[self._authenticate])
        app.router.add_get("/api/tenancy/tenants/", self._list_tenants)
        app.router.add_get("/api/ipam/ip-addresses/", self._list_addresses)
        app.router.add_get("/api/ipam/ip-addresses/{number}/", self._get_address)
        app.router.add_patch("/api/ipam/ip-addresses/{number}/", self._patch_address)
        return app

    @web.middleware
    async def _authenticate(self, request, handler):
        self.requests.append(f"{request.method} {request.path}")
        scheme, _space, token = request.headers.get("Authorization", "").partition(" ")
        version, expected = (2, "Bearer") if token.startswith("nbt_") else (1, "Token")
        if not scheme:
            detail = "Authentication credentials were not provided."
            return web.json_response({"detail": detail}, status=403)
        if scheme != expected or token not in self.tokens.values():
            return web.json_response({"detail": f"Invalid v{version} token"}, status=403)
        if token == self.tokens["powerless"]:
            return web.json_response(FORBIDDEN, status=403)
        return await handler(request)

    async def _list_tenants(self, request):
        wanted = {k: v for k, v in request.query.items() if k in ("name", "slug")}
        found = [t for t in self.tenants.values() if all(t[k] == v for k, v in wanted.items())]
        return self._page(request, found)

    async def _list_addresses(self, request):
        query = request.query
        for status in query.getall("status", []):
            if status not in STATUSES:
                text = f"Select a valid choice. {status} is not one of the available choices."
                return web.json_response({"status": [text]}, status=400)
        checks = {
            "tenant_id": lambda a, v: str(a["tenant"]["id"]) in v,
            "status": lambda a, v: a["status"]["value"] in v,
            "family": lambda a, v: str(a["family"]["value"]) in v,
            "description__ic": lambda a, v: v[0].lower() in a["description"].lower(),
            "description__isw": lambda a, v: a["description"].lower().startswith(v[0].lower()),
            "address": lambda a, v: str(ip_interface(a["address"]).ip) == v[0],
        }
        found = [
            a
            for a in self.addresses.values()
            if all(check(a, query.getall(k)) for k, check in checks.items() if k in query)
        ]
        found.sort(key=lambda a: (a["family"]["value"], int(ip_interface(a["address"]))))
        return self._page(request, found)

    def _page(self, request, found):
        limit = min(int(request.query.get("limit", 50)) or self.largest_page, self.largest_page)
        offset = int(request.query.get("offset", 0))
        after = offset + limit
        following = request.url.update_query(limit=limit, offset=after)
        body = {
            "count": len(found),
            "next": str(following) if after < len(found) else None,
            "previous": None,
            "results": found[offset:after],
        }
        return web.json_response(body)

    async def _get_address(self, request):
        record = self.addresses.get(int(request.match_info["number"]))
        if record is None:
            detail = "No IPAddress matches the given query."
            return web.json_response({"detail": detail}, status=404)
        return web.json_response(record, headers=self.headers(record))

    async def _patch_address(self, request):
        number = int(request.match_info["number"])
        if self.before_patch is not None:
            hook, self.before_patch = self.before_patch, None
            hook(number)
        record, body = self.addresses[number], await request.json()
        wanted = request.headers.get("If-Match")
        if self.has_etags and wanted and wanted != self.headers(record)["ETag"]:
            return web.json_response({"detail": "Precondition failed."}, status=412)
        if len(body.get("description", "")) > 200:
            text = "Ensure this field has no more than 200 characters."
            return web.json_response({"description": [text]}, status=400)
        self.change(number, **body)
        return web.json_response(record, headers=self.headers(record))


class Serving:
    """Serves an application at `url` inside its block."""

    def __init__(self, app, *, host="127.0.0.1", tls=None):
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        self._host, self._tls = host, tls

    async def __aenter__(self):
        await self._runner.setup()
        await web.TCPSite(self._runner, self._host, 0, ssl_context=self._tls).start()
        host = f"[{self._host}]" if ":" in self._host else self._host
        scheme = "https" if self._tls else "http"
        self.url = f"{scheme}://{host}:{self._runner.addresses[0][1]}"
        await asyncio.sleep(0)
        return self

    async def __aexit__(self, *_error):
        await self._runner.cleanup()


async def main(port, *addresses):
    """Serve these addresses, of a tenant `lab`, until killed."""
    standin = StandIn()
    tenant = standin.add_tenant("Lab", "lab")
    for address in addresses:
        standin.add_address(tenant, address)
    runner = web.AppRunner(standin.app())
    await runner.setup()
    await web.TCPSite(runner, None, int(port)).start()
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))

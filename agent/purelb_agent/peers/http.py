# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""HTTP to the agents of other nodes, without TLS: messages and replies are signed."""

from __future__ import annotations

from typing import Self

import aiohttp

from purelb.core.model import Address

PATH = "/peer"
_V6 = 6
# What two nodes have of ten thousand addresses is shorter.
_LONGEST_REPLY = 2**20


class PeerHttp:
    """Carries questions to one port of every node; used as an async context manager."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        """Open the HTTP session."""
        # A connection kept open from before an outage may be broken, so none is reused.
        connector = aiohttp.TCPConnector(limit=0, force_close=True)
        self._session = aiohttp.ClientSession(
            connector=connector, timeout=aiohttp.ClientTimeout(total=None)
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close every connection."""
        if self._session is not None:
            await self._session.close()

    async def send(self, address: Address, message: bytes) -> bytes:
        """Return the body of an agent's reply; OSError if there is none of the usual length."""
        if self._session is None:
            raise RuntimeError("PeerHttp is not open")
        host = f"[{address}]" if address.version == _V6 else str(address)
        url = f"http://{host}:{self._port}{PATH}"
        try:
            async with self._session.post(url, data=message, allow_redirects=False) as reply:
                if not 0 < (reply.content_length or 0) <= _LONGEST_REPLY:
                    raise OSError(f"{url}: a reply of {reply.content_length} bytes")
                return await reply.read()
        except aiohttp.ClientError as error:
            raise OSError(f"{url}: {error}") from error

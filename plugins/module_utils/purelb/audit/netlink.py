# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the interfaces, addresses and default routes of this host from its kernel.

Changes nothing. Netlink instead of the command `ip`: it needs neither privileges nor iproute2,
which small systems lack or have without JSON output. The kernel flags a dump that a change
interrupted; such a dump is repeated. The bytes of the messages are core/node/rtnetlink's business.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from ..core.errors import PureLBError
from ..core.node import default_routes, rtnetlink
from ..core.node.rtnetlink import AddressMessage, LinkMessage, Message

_BUFFER = 1 << 18
_ATTEMPTS = 5
_TIMEOUT = 10.0


@dataclass(frozen=True)
class Interface:
    """An interface and its addresses. `default_metrics`: by IP version, of its default routes."""

    index: int
    name: str
    mac: bytes
    is_up: bool
    state: str
    default_metrics: Mapping[int, int]
    addresses: Tuple[AddressMessage, ...]


def interfaces() -> List[Interface]:
    """Return all interfaces of this network namespace, sorted by index."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.settimeout(_TIMEOUT)
        link.bind((0, 0))
        addresses = addresses_by_link(_dump(link, rtnetlink.RTM_GETADDR))
        routes = _dump(link, rtnetlink.RTM_GETROUTE, keep=default_routes.is_default_route)
        links = _dump(link, rtnetlink.RTM_GETLINK)
    metrics = default_routes.default_metrics(default_routes.default_routes(routes))
    found = (_interface(rtnetlink.parse_link(link), addresses, metrics) for link in links)
    return sorted(found, key=lambda interface: interface.index)


def _dump(
    link: socket.socket, kind: int, keep: Optional[Callable[[Message], bool]] = None
) -> List[Message]:
    """Return the messages of an uninterrupted dump that are worth keeping."""
    for sequence in range(1, _ATTEMPTS + 1):
        link.send(rtnetlink.build_dump(kind, sequence))
        reply = rtnetlink.read_reply(lambda: link.recv(_BUFFER), sequence, keep=keep)
        if reply.error:
            reason = os.strerror(reply.error)
            raise PureLBError(f"the kernel refused to list its interfaces: {reason}")
        if not reply.was_interrupted:
            return reply.messages
    raise PureLBError(
        f"the interfaces of this host changed during each of {_ATTEMPTS} attempts to read them: "
        "try again"
    )


def addresses_by_link(messages: Iterable[Message]) -> Dict[int, Tuple[AddressMessage, ...]]:
    """Return the IP addresses in these messages, by index of the interface."""
    found: Dict[int, List[AddressMessage]] = {}
    for address in map(rtnetlink.parse_address, messages):
        if address is not None:
            found.setdefault(address.link, []).append(address)
    return {index: tuple(addresses) for index, addresses in found.items()}


def _interface(
    link: LinkMessage,
    addresses: Mapping[int, Tuple[AddressMessage, ...]],
    metrics: Mapping[int, Mapping[int, int]],
) -> Interface:
    return Interface(
        index=link.index,
        name=link.name,
        mac=link.mac,
        is_up=link.is_up,
        state=link.state,
        default_metrics=metrics.get(link.index, {}),
        addresses=addresses.get(link.index, ()),
    )

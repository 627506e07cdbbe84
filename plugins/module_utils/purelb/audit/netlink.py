# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Reads the interfaces, addresses and routes of its subnets of this host from its kernel.

Changes nothing. Netlink instead of the command `ip`: it needs neither privileges nor iproute2,
which small systems lack or have without JSON output. The kernel flags a dump that a change
interrupted; such a dump is repeated. The bytes of the messages are core/node/rtnetlink's business.
"""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import Callable, Dict, FrozenSet, Iterable, List, Mapping, Optional, Tuple

from ..core.errors import PureLBError
from ..core.model import Network
from ..core.node import routes, rtnetlink
from ..core.node.rtnetlink import AddressMessage, Message

_BUFFER = 1 << 18
_ATTEMPTS = 5
_TIMEOUT = 10.0


@dataclass(frozen=True)
class Interface:
    """An interface and its addresses.

    `default_metrics`: by IP version, of its default routes. `on_link`: subnets of its neighbors, by
    its routes.
    """

    index: int
    name: str
    mac: bytes
    is_up: bool
    state: str
    default_metrics: Mapping[int, int]
    addresses: Tuple[AddressMessage, ...]
    on_link: FrozenSet[Network] = frozenset()


def interfaces() -> List[Interface]:
    """Return all interfaces of this network namespace, sorted by index."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as link:
        link.settimeout(_TIMEOUT)
        link.bind((0, 0))
        addresses = addresses_by_link(_dump(link, rtnetlink.RTM_GETADDR))
        kept = _dump(link, rtnetlink.RTM_GETROUTE, keep=routes.is_of_interest)
        links = _dump(link, rtnetlink.RTM_GETLINK)
    metrics, on_link = (
        routes.default_metrics(routes.default_routes(kept)),
        routes.on_link_routes(kept),
    )
    found = (
        Interface(
            index=link.index,
            name=link.name,
            mac=link.mac,
            is_up=link.is_up,
            state=link.state,
            default_metrics=metrics.get(link.index, {}),
            addresses=addresses.get(link.index, ()),
            on_link=on_link.get(link.index, frozenset()),
        )
        for link in map(rtnetlink.parse_link, links)
    )
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

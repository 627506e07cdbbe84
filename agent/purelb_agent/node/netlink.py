# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Reads and changes the kernel's interfaces and addresses, and reports changes to them.

Requests have a socket of their own. Notifications arrive on a second one that the event loop
watches. core/node/rtnetlink encodes and decodes the messages.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable
from dataclasses import dataclass, replace

from purelb.core.model import InterfaceAddress, Link
from purelb.core.names import LINK_ALIAS
from purelb.core.node import routes, rtnetlink
from purelb.core.node.plan import Put
from purelb.core.node.rtnetlink import LinkMessage, Message
from purelb_agent.node.resumes import Resumes
from purelb_agent.runtime import clock
from purelb_agent.runtime.netlink import BUFFER, NetlinkError, Requests, open_socket

_GROUPS = (
    rtnetlink.RTMGRP_LINK
    | rtnetlink.RTMGRP_IPV4_IFADDR
    | rtnetlink.RTMGRP_IPV6_IFADDR
    | rtnetlink.RTMGRP_IPV4_ROUTE
    | rtnetlink.RTMGRP_IPV6_ROUTE
)
# A removal that fails like this has succeeded: the address or the interface is already gone.
_ALREADY_GONE = {errno.EADDRNOTAVAIL, errno.ENODEV}
_V6 = 6


@dataclass(frozen=True)
class News:
    """A change: of an address or a link, which was added, changed or removed, or of anything else.

    `link`: as it was then; it may have changed again since. `is_resume`: the machine has slept.
    """

    address: InterfaceAddress | None = None
    link: Link | None = None
    is_gone: bool = False
    is_resume: bool = False


class Kernel:
    """The network interfaces of the network namespace that `open_socket` leads to."""

    def __init__(
        self,
        *,
        open_socket: Callable[[int], socket.socket] = open_socket,
        open_resumes: Callable[[], Resumes] = Resumes,
    ) -> None:
        self._requests = Requests(open_socket)
        self._news = open_socket(_GROUPS)
        self._news.setblocking(False)
        self._open_resumes = open_resumes
        self._resumes: Resumes | None = None

    def close(self) -> None:
        """Close all that is open."""
        loop = asyncio.get_running_loop()
        loop.remove_reader(self._news)
        if self._resumes is not None:
            loop.remove_reader(self._resumes)
            self._resumes.close()
        self._requests.close()
        self._news.close()

    def subscribe(self, callback: Callable[[News], None]) -> None:
        """Call back from the event loop with each change from now on.

        After a sleep of the machine, anything may have changed.
        """
        loop = asyncio.get_running_loop()
        loop.add_reader(self._news, self._read_news, callback)
        self._resumes = resumes = self._open_resumes()

        def resumed() -> None:
            resumes.read()
            callback(News(is_resume=True))

        loop.add_reader(resumes, resumed)

    def _read_news(self, callback: Callable[[News], None]) -> None:
        while True:
            try:
                data = self._news.recv(BUFFER)
            except BlockingIOError:
                return
            except OSError:  # ENOBUFS: notifications were lost, so anything may have changed
                callback(News())
                continue
            for message in rtnetlink.parse_messages(data):
                if not _is_other_route(message):
                    callback(self._news_of(message))

    @staticmethod
    def _news_of(message: Message) -> News:
        if message.kind == rtnetlink.RTM_NEWLINK:
            return News(link=_link(rtnetlink.parse_link(message)))
        if message.kind not in (rtnetlink.RTM_NEWADDR, rtnetlink.RTM_DELADDR):
            return News()
        address = rtnetlink.interface_address(message, clock.now())
        return News(address, is_gone=message.kind == rtnetlink.RTM_DELADDR)

    def _dump(self, kind: int) -> list[Message]:
        return self._requests.dump(lambda sequence: rtnetlink.build_dump(kind, sequence))

    def addresses(self) -> tuple[InterfaceAddress, ...]:
        """Return all addresses of all interfaces."""
        now = clock.now()
        found = (rtnetlink.interface_address(m, now) for m in self._dump(rtnetlink.RTM_GETADDR))
        return tuple(address for address in found if address is not None)

    def links(self) -> tuple[Link, ...]:
        """Return all interfaces, each with what its default routes and on-link routes say."""
        dump = self._dump(rtnetlink.RTM_GETROUTE)
        default = routes.default_routes(dump)
        metrics, gateways = routes.default_metrics(default), routes.gateways(default)
        on_link = routes.on_link_routes(dump)
        found = map(_link, map(rtnetlink.parse_link, self._dump(rtnetlink.RTM_GETLINK)))
        return tuple(
            replace(
                link,
                default_metrics=metrics.get(link.index, {}),
                gateways=gateways.get(link.index, frozenset()),
                on_link=on_link.get(link.index, frozenset()),
            )
            for link in found
        )

    def put(self, put: Put) -> None:
        """Add an address or reset its lifetimes; NetlinkError if the kernel refuses.

        EEXIST if a new one is already on that interface, by whomever.
        """
        self._requests.send(lambda sequence: rtnetlink.build_put(put, sequence))

    def remove(self, held: InterfaceAddress) -> None:
        """Remove an address from its interface, unless it is gone already, and no other.

        An IPv4 address can have secondaries in its subnet: the kernel keeps them only if the
        interface promotes them, so it does for that moment.
        """
        if held.address.version == _V6 or held.prefixlen == held.address.max_prefixlen:
            self._remove(held)
            return
        try:
            reply = self._requests.send(lambda n: rtnetlink.build_get_link(held.link, n))
        except NetlinkError as error:
            if error.errno in _ALREADY_GONE:
                return
            raise
        if any(map(rtnetlink.parse_promotes, reply.messages)):
            self._remove(held)
            return
        self._requests.send(lambda n: rtnetlink.build_promote(held.link, n, on=True))
        try:
            self._remove(held)
        finally:
            self._requests.send(lambda n: rtnetlink.build_promote(held.link, n, on=False))

    def _remove(self, held: InterfaceAddress) -> None:
        self._request_removal(lambda sequence: rtnetlink.build_remove(held, sequence))

    def add_dummy(self, name: str) -> None:
        """Create a dummy interface, up and with our alias; an existing link stays as it is."""
        try:
            self._requests.send(lambda sequence: rtnetlink.build_dummy(name, sequence))
        except NetlinkError as error:
            if error.errno != errno.EEXIST:
                raise
        else:
            # The kernel ignores an alias in the request that creates a link. An agent killed
            # between the two requests leaves a link that every agent uses and no agent removes.
            self._requests.send(lambda sequence: rtnetlink.build_alias(name, LINK_ALIAS, sequence))

    def remove_link(self, link: Link) -> None:
        """Remove an interface, unless it is gone already."""
        self._request_removal(lambda sequence: rtnetlink.build_delete_link(link.index, sequence))

    def _request_removal(self, build: Callable[[int], bytes]) -> None:
        try:
            self._requests.send(build)
        except NetlinkError as error:
            if error.errno not in _ALREADY_GONE:
                raise


def _link(found: LinkMessage) -> Link:
    """Return a link without what routes say of it."""
    return Link(
        index=found.index,
        name=found.name,
        mac=found.mac if found.is_ethernet else b"",
        is_up=found.is_up,
        has_carrier=rtnetlink.has_carrier(found.state),
        alias=found.alias,
        kind=found.kind,
        master=found.master,
    )


def _is_other_route(message: Message) -> bool:
    """Whether this is about a route that changes no link; each address brings some."""
    is_route = message.kind in (rtnetlink.RTM_NEWROUTE, rtnetlink.RTM_DELROUTE)
    parsers = (routes.parse_default_route, routes.parse_on_link_route)
    return is_route and all(parse(message) is None for parse in parsers)

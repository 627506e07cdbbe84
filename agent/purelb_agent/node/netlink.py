# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The kernel's interfaces and addresses: read whole, changed one by one, changes noticed.

Requests go over a socket of their own and are answered by the kernel at once, so they are made
without waiting; news arrives on a second socket that the event loop watches.
"""

from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

from purelb.core.model import InterfaceAddress, Link
from purelb.core.names import LINK_ALIAS
from purelb.core.node.plan import Put
from purelb_agent.node import rtnetlink
from purelb_agent.node.rtnetlink import Message
from purelb_agent.runtime import clock

_GROUPS = (
    rtnetlink.RTMGRP_LINK
    | rtnetlink.RTMGRP_IPV4_IFADDR
    | rtnetlink.RTMGRP_IPV6_IFADDR
    | rtnetlink.RTMGRP_IPV4_ROUTE
    | rtnetlink.RTMGRP_IPV6_ROUTE
)
_BUFFER = 1 << 20
_SECONDS = 2.0
# Put again what is there, or removed what is gone: the interface is as it should be.
_DONE_ALREADY = {errno.EEXIST, errno.EADDRNOTAVAIL, errno.ENODEV}


class NetlinkError(OSError):
    """The kernel refused a request."""


@dataclass(frozen=True)
class News:
    """Something changed: an address that came (or changed) or went; None for anything else."""

    address: InterfaceAddress | None = None
    is_gone: bool = False


class Kernel:
    """The network interfaces of this network namespace."""

    def __init__(self) -> None:
        self._requests = self._open(groups=0)
        self._requests.settimeout(_SECONDS)
        self._news = self._open(groups=_GROUPS)
        self._news.setblocking(False)
        self._sequence = 0

    @staticmethod
    def _open(groups: int) -> socket.socket:
        opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
        opened.bind((0, groups))
        return opened

    def close(self) -> None:
        """Close both sockets."""
        asyncio.get_running_loop().remove_reader(self._news)
        self._requests.close()
        self._news.close()

    def subscribe(self, callback: Callable[[News], None]) -> None:
        """Call back from the event loop with each change from now on."""
        asyncio.get_running_loop().add_reader(self._news, self._read_news, callback)

    def _read_news(self, callback: Callable[[News], None]) -> None:
        while True:
            try:
                data = self._news.recv(_BUFFER)
            except BlockingIOError:
                return
            except OSError:  # ENOBUFS: news was lost, so anything may have changed
                callback(News())
                continue
            for message in rtnetlink.parse_messages(data):
                if not _is_other_route(message):
                    callback(self._news_of(message))

    @staticmethod
    def _news_of(message: Message) -> News:
        if message.kind not in (rtnetlink.RTM_NEWADDR, rtnetlink.RTM_DELADDR):
            return News()
        address = rtnetlink.parse_address(message, clock.now())
        return News(address, is_gone=message.kind == rtnetlink.RTM_DELADDR)

    def _send(self, build: Callable[[int], bytes]) -> int:
        self._sequence += 1
        self._requests.send(build(self._sequence))
        return self._sequence

    def _answers(self, sequence: int) -> list[Message]:
        """Messages of the answer to a request, up to its end."""
        answers: list[Message] = []
        while True:
            for message in rtnetlink.parse_messages(self._requests.recv(_BUFFER)):
                if message.sequence != sequence:
                    continue  # the late answer to a request that was given up
                if message.kind == rtnetlink.NLMSG_DONE:
                    return answers
                if message.kind == rtnetlink.NLMSG_ERROR:
                    code = rtnetlink.parse_error(message)
                    if code:
                        raise NetlinkError(code, os.strerror(code))
                    return answers
                answers.append(message)

    def _dump(self, kind: int) -> list[Message]:
        return self._answers(self._send(lambda seq: rtnetlink.build_dump(kind, seq)))

    def addresses(self) -> tuple[InterfaceAddress, ...]:
        """All addresses of all interfaces."""
        now = clock.now()
        found = (rtnetlink.parse_address(m, now) for m in self._dump(rtnetlink.RTM_GETADDR))
        return tuple(address for address in found if address is not None)

    def links(self) -> tuple[Link, ...]:
        """All interfaces, each with the metrics of its default routes."""
        metrics: dict[int, dict[int, int]] = defaultdict(dict)
        for message in self._dump(rtnetlink.RTM_GETROUTE):
            route = rtnetlink.parse_default_route(message)
            if route is None:
                continue
            for index in route.links:
                known = metrics[index].get(route.version, route.metric)
                metrics[index][route.version] = min(known, route.metric)
        return tuple(
            rtnetlink.parse_link(message, metrics.get(_index(message), {}))
            for message in self._dump(rtnetlink.RTM_GETLINK)
        )

    def put(self, put: Put) -> None:
        """Add an address or set its lifetimes anew; NetlinkError if the kernel refuses."""
        self._answers(self._send(lambda seq: rtnetlink.build_put(put, seq)))

    def remove(self, held: InterfaceAddress) -> None:
        """Take an address off its interface; that it is gone already is success."""
        try:
            self._answers(self._send(lambda seq: rtnetlink.build_remove(held, seq)))
        except NetlinkError as problem:
            if problem.errno not in _DONE_ALREADY:
                raise

    def add_dummy(self, name: str) -> None:
        """Make a dummy interface, up and marked as ours; a link of that name stays as it is."""
        try:
            self._answers(self._send(lambda seq: rtnetlink.build_dummy(name, seq)))
        except NetlinkError as problem:
            if problem.errno != errno.EEXIST:
                raise
        else:
            # The kernel takes no alias in the request that makes a link. An agent killed between
            # the two leaves a link that no agent removes, and every agent uses.
            self._answers(self._send(lambda seq: rtnetlink.build_alias(name, LINK_ALIAS, seq)))

    def remove_link(self, link: Link) -> None:
        """Remove an interface; that it is gone already is success."""
        try:
            self._answers(self._send(lambda seq: rtnetlink.build_delete_link(link.index, seq)))
        except NetlinkError as problem:
            if problem.errno not in _DONE_ALREADY:
                raise


def _index(message: Message) -> int:
    return rtnetlink.parse_link(message, {}).index


def _is_other_route(message: Message) -> bool:
    """Whether this is about a route that selects no interface; each address brings some."""
    is_route = message.kind in (rtnetlink.RTM_NEWROUTE, rtnetlink.RTM_DELROUTE)
    return is_route and rtnetlink.parse_default_route(message) is None

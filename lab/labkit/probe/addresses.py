# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which addresses a node has, from its kernel: read once, or followed by its notifications.

What the fence ends counts as long as the fence is open.
"""

from __future__ import annotations

import os
import socket
from ipaddress import ip_address

from labkit.lab import Lab
from labkit.net.namespaces import netns
from labkit.probe.fences import NodeFence
from purelb.core.model import Address
from purelb.core.names import FENCED_PROTOCOL
from purelb.core.node import rtnetlink
from purelb.core.node.rtnetlink import Message

_LOOPBACK = 1  # the index of lo in every network namespace
_GROUPS = rtnetlink.RTMGRP_IPV4_IFADDR | rtnetlink.RTMGRP_IPV6_IFADDR
# Large enough that no notification is lost; if one is, the read fails, and the test with it.
_BUFFER = 8 << 20
_SO_RCVBUFFORCE = 33
_READ = 1 << 16

Place = tuple[int, int, Address]
"""Interface, prefix length, address."""


def _places(message: Message) -> dict[Place, int]:
    """Return the place in a message about an IP address, with its mark; none in any other."""
    found = rtnetlink.parse_address(message)
    if found is None:
        return {}
    return {(found.link, found.prefixlen, found.address): found.protocol}


def _open(*, groups: int) -> socket.socket:
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    opened.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    opened.bind((0, groups))
    return opened


class NodeAddresses:
    """The addresses on one node: dumped once, then updated by its kernel's notifications."""

    def __init__(self, lab: Lab, node: str) -> None:
        self._fence = NodeFence(lab, node)
        with netns(lab.nodes[node].netns):
            self.news = _open(groups=_GROUPS)
            self._requests = _open(groups=0)
        self._places = self._dump()

    @property
    def addresses(self) -> set[Address]:
        """The addresses on all interfaces but lo, without those that the fence keeps silent now."""
        is_open = self._fence.is_open
        return {
            address
            for (index, _length, address), protocol in self._places.items()
            if index != _LOOPBACK and (is_open or protocol != FENCED_PROTOCOL)
        }

    def _dump(self) -> dict[Place, int]:
        while True:
            places, is_whole = self._dump_once()
            if is_whole:
                return places

    def _dump_once(self) -> tuple[dict[Place, int], bool]:
        """Return all addresses, and whether no change interrupted the dump."""
        self._requests.send(rtnetlink.build_dump(rtnetlink.RTM_GETADDR, 0))
        reply = rtnetlink.read_reply(lambda: self._requests.recv(_READ), 0)
        if reply.error:
            raise OSError(reply.error, os.strerror(reply.error))
        places: dict[Place, int] = {}
        for message in reply.messages:
            places |= _places(message)
        return places, not reply.was_interrupted

    def read(self) -> None:
        """Apply the notifications received since; raises OSError if some were lost."""
        while True:
            try:
                data = self.news.recv(_READ, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            for message in rtnetlink.parse_messages(data):
                if message.kind == rtnetlink.RTM_NEWADDR:
                    self._places |= _places(message)
                elif message.kind == rtnetlink.RTM_DELADDR:
                    for place in _places(message):
                        self._places.pop(place, None)

    def disagreement(self) -> set[Place]:
        """Return the places in which the notifications and the kernel differ."""
        there = self._dump()
        self.read()
        return {place for place, _mark in there.items() ^ self._places.items()}

    def close(self) -> None:
        """Stop listening."""
        self.news.close()
        self._requests.close()


def addresses_on(lab: Lab, node: str) -> set[Address]:
    """Return the addresses that a node has; what its fence keeps silent it has not."""
    read = NodeAddresses(lab, node)
    read.close()
    return read.addresses


def nodes_with(lab: Lab, vip: str) -> set[str]:
    """Return the nodes that have an address; reads each node once."""
    address = ip_address(vip)
    return {node for node in lab.nodes if address in addresses_on(lab, node)}

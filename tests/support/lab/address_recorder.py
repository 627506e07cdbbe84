# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Who holds an address, as the kernels of all nodes tell it: news by netlink, not by looking.

An address counts as held from the moment that it is on an interface, also while it is tentative or
after duplicate address detection refused it: what is asked is presence, not usefulness. News of
several nodes that one wake-up of the reader finds count as at once.
"""

from __future__ import annotations

import select
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import groupby

from labkit.lab import Lab
from labkit.net.namespaces import netns

_LOOPBACK = 1  # the index of lo in every network namespace
_GROUPS = 0x10 | 0x100  # RTMGRP_IPV4_IFADDR, RTMGRP_IPV6_IFADDR
_NLMSG_DONE, _RTM_NEWADDR, _RTM_DELADDR, _RTM_GETADDR = 3, 20, 21, 22
_REQUEST_DUMP, _DUMP_INTR = 0x301, 0x10  # NLM_F_DUMP_INTR: something changed meanwhile
_IFA_ADDRESS, _IFA_LOCAL = 1, 2
# So that no news is lost; if some were, the read fails, and the test with it.
_BUFFER = 8 << 20
_SO_RCVBUFFORCE = 33
_READ = 1 << 16
_STOP_MS = 50  # how often the reader looks whether it is to stop
# A kernel tells of a change after it made it: on a busy machine a while after. Lost news stay away.
_NEWS_SECONDS = 2.0
_HEADER, _IFADDRMSG, _ATTRIBUTE = (struct.Struct(f) for f in ("=IHHII", "=BBBBI", "=HH"))

Place = tuple[int, int, bytes]
"""Interface, prefix length, address."""


def _messages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Yield kind, flags and body of each."""
    offset = 0
    while offset < len(data):
        length, kind, flags, *_rest = _HEADER.unpack_from(data, offset)
        yield kind, flags, data[offset + _HEADER.size : offset + length]
        offset += (length + 3) & ~3


def _place(body: bytes) -> Place:
    _family, prefixlen, _flags, _scope, index = _IFADDRMSG.unpack_from(body)
    found, offset = {}, _IFADDRMSG.size
    while offset < len(body):
        length, kind = _ATTRIBUTE.unpack_from(body, offset)
        found[kind] = body[offset + _ATTRIBUTE.size : offset + length]
        offset += (length + 3) & ~3
    # Where both are there, the other one is the peer of a point-to-point link.
    return index, prefixlen, found.get(_IFA_LOCAL) or found[_IFA_ADDRESS]


def _open(*, groups: int) -> socket.socket:
    made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, _BUFFER)
    made.bind((0, groups))
    return made


class _Node:
    """The addresses on one node: all at first, then kept by its kernel's news."""

    def __init__(self, namespace: str) -> None:
        with netns(namespace):
            self.news = _open(groups=_GROUPS)
            self._requests = _open(groups=0)
        self._places = self._dump()

    @property
    def addresses(self) -> set[bytes]:
        """What is on any interface but lo."""
        return {packed for index, _length, packed in self._places if index != _LOOPBACK}

    def _dump(self) -> set[Place]:
        while True:
            places, is_whole = self._dump_once()
            if is_whole:
                return places

    def _dump_once(self) -> tuple[set[Place], bool]:
        """Ask for all addresses; tell whether none may have been passed over by a change."""
        body = bytes(_IFADDRMSG.size)
        size = _HEADER.size + len(body)
        self._requests.send(_HEADER.pack(size, _RTM_GETADDR, _REQUEST_DUMP, 0, 0) + body)
        places: set[Place] = set()
        is_whole = True
        while True:
            for kind, flags, answer in _messages(self._requests.recv(_READ)):
                is_whole = is_whole and not flags & _DUMP_INTR
                if kind == _NLMSG_DONE:
                    return places, is_whole
                places.add(_place(answer))

    def read(self) -> None:
        """Take what the kernel told since; an OSError says that some of it was lost."""
        while True:
            try:
                data = self.news.recv(_READ, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            for kind, _flags, body in _messages(data):
                if kind == _RTM_NEWADDR:
                    self._places.add(_place(body))
                elif kind == _RTM_DELADDR:
                    self._places.discard(_place(body))

    def disagreement(self) -> set[Place]:
        """In what the news has not led to what is there."""
        there = self._dump()
        self.read()
        return there ^ self._places

    def close(self) -> None:
        """Stop listening."""
        self.news.close()
        self._requests.close()


@dataclass
class Holders:
    """Who held some addresses: each change of it, as (time, address -> nodes)."""

    samples: list[tuple[float, dict[str, frozenset[str]]]] = field(default_factory=list)
    ended: float | None = None

    @property
    def now(self) -> dict[str, frozenset[str]]:
        """Who holds what at this moment."""
        return self.samples[-1][1]

    def _stretches(
        self, vip: str, matches: Callable[[frozenset[str]], bool]
    ) -> list[tuple[bool, float]]:
        """Whether the holders were such, and for how long, one stretch after the other."""
        samples = tuple(self.samples)
        begins = [moment for moment, _held in samples]
        ends = [*begins[1:], self.ended or time.monotonic()]
        spans = zip((matches(held[vip]) for _time, held in samples), begins, ends, strict=True)
        return [
            (such, sum(end - begin for _such, begin, end in stretch))
            for such, stretch in groupby(spans, key=lambda span: span[0])
        ]

    def seconds_with(self, vip: str, matches: Callable[[frozenset[str]], bool]) -> float:
        """How long in all the holders of an address were such."""
        return sum(seconds for such, seconds in self._stretches(vip, matches) if such)

    def longest_with(self, vip: str, matches: Callable[[frozenset[str]], bool]) -> float:
        """How long at most the holders of an address were such without a pause."""
        return max((s for such, s in self._stretches(vip, matches) if such), default=0.0)

    def seconds_doubled(self, vip: str) -> float:
        """How long two nodes or more had the address."""
        return self.seconds_with(vip, lambda nodes: len(nodes) > 1)

    def longest_doubled(self, vip: str) -> float:
        """How long at most two nodes or more had the address at a time."""
        return self.longest_with(vip, lambda nodes: len(nodes) > 1)

    def longest_unheld(self, vip: str) -> float:
        """How long at most no node had the address."""
        return self.longest_with(vip, lambda nodes: not nodes)

    def sequence(self, vip: str) -> list[frozenset[str]]:
        """Holders one after the other, each once."""
        return [nodes for nodes, _group in groupby(held[vip] for _time, held in self.samples)]


class _Reader(threading.Thread):
    """Writes down each change until it is stopped."""

    def __init__(self, lab: Lab, vips: tuple[str, ...], holders: Holders) -> None:
        super().__init__()
        self._packed = {vip: ip_address(vip).packed for vip in vips}
        self._nodes = {name: _Node(host.netns) for name, host in lab.nodes.items()}
        self._holders = holders
        self._finished = threading.Event()
        self._note()

    def _note(self) -> None:
        now = time.monotonic()
        on = {name: node.addresses for name, node in self._nodes.items()}
        held = {
            vip: frozenset(name for name, addresses in on.items() if packed in addresses)
            for vip, packed in self._packed.items()
        }
        samples = self._holders.samples
        if not samples or samples[-1][1] != held:
            samples.append((now, held))

    def run(self) -> None:
        """Read news until stopped."""
        poll = select.poll()
        for node in self._nodes.values():
            poll.register(node.news, select.POLLIN)
        while not self._finished.is_set():
            if poll.poll(_STOP_MS):
                for node in self._nodes.values():
                    node.read()
                self._note()

    def end(self) -> None:
        """Stop, and check that nothing was missed."""
        self._finished.set()
        self.join()
        self._holders.ended = time.monotonic()
        missed = {name: places for name, node in self._nodes.items() if (places := _missed(node))}
        for node in self._nodes.values():
            node.close()
        assert not missed, f"the kernels did not tell of {missed} (interface, length, address)"


def _missed(node: _Node) -> set[Place]:
    """Where a node's news and its addresses still differ after the news has had time to come."""
    deadline = time.monotonic() + _NEWS_SECONDS
    while (places := node.disagreement()) and (left := deadline - time.monotonic()) > 0:
        select.select([node.news], [], [], left)
    return places


@contextmanager
def sampling(lab: Lab, *vips: str) -> Iterator[Holders]:
    """Write down in the background who holds these addresses; the first answer is there at once."""
    holders = Holders()
    reader = _Reader(lab, vips, holders)
    reader.start()
    try:
        yield holders
    finally:
        reader.end()

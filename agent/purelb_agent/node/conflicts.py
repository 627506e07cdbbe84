# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Listens for other hosts that have this node's addresses, and asks for them (needs CAP_NET_RAW).

What a claim is worth is decided elsewhere (core.conflicts); here are the sockets, one on each
interface that has addresses, and the task that sends the probes. The kernel sorts the traffic: of a
busy interface only the few frames that can be a claim wake the process.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Iterable

from purelb.core.model import Address, Link
from purelb.core.node.conflicts import ConflictDetector, DuplicateAddress, Place
from purelb.core.node.packets import AddressClaim, build_probe, parse_claim
from purelb_agent.node.sockets import FrameSender
from purelb_agent.runtime import clock, log

_ETH_P_ALL = 3
_SOL_PACKET = 263
# Linux 4.20. Without it the kernel would copy each frame that the node sends, to drop the copy.
_PACKET_IGNORE_OUTGOING = 23
_SO_ATTACH_FILTER = 26
_MAC_LENGTH = 6
_LONGEST = 2048
# Frames read before the loop gets its turn: a storm on the segment must not stop a renewal.
_BURST = 64

# Classic BPF, linux/filter.h: what to load into A, how to compare it, whether to keep the frame.
_WORD, _HALF, _BYTE = 0x20, 0x28, 0x30  # BPF_LD | BPF_ABS | size
_TO_X = 0x07  # BPF_MISC | BPF_TAX
_EQUAL, _EQUAL_X, _HAS_BITS = 0x15, 0x1D, 0x45  # BPF_JMP | BPF_JEQ, BPF_JEQ | BPF_X, BPF_JSET
_RETURN = 0x06  # BPF_RET | BPF_K
_VLAN_TAG, _VLAN_PRESENT = 0xFFFFF000 + 44, 0xFFFFF000 + 48  # SKF_AD_OFF + SKF_AD_VLAN_...
_VLAN_ID = 0x0FFF
_ETHERTYPE, _ARP, _IPV6 = 12, 0x0806, 0x86DD
_ARP_OPERATION, _ARP_REPLY, _ARP_SENDER, _ARP_TARGET = 20, 2, 28, 38
_IPV6_PROTOCOL, _ICMPV6, _ICMPV6_TYPE, _ADVERTISEMENT = 20, 58, 54, 136
_WHOLE_FRAME = 0xFFFF

# Rows of (code, rows to skip if so, rows to skip if not, operand), each with its number. A load
# past the end of a frame drops it.
FILTER = (
    # A frame of another VLAN is seen here on its way to its own interface: no claim on this one.
    (_WORD, 0, 0, _VLAN_PRESENT),  # 0
    (_EQUAL, 2, 0, 0),  # 1: untagged, to 4
    (_WORD, 0, 0, _VLAN_TAG),  # 2
    (_HAS_BITS, 14, 0, _VLAN_ID),  # 3: drop; VLAN 0 is this one, with a priority
    (_HALF, 0, 0, _ETHERTYPE),  # 4
    (_EQUAL, 0, 6, _ARP),  # 5: else to 12
    # ARP: a reply, or sender and target are the same.
    (_HALF, 0, 0, _ARP_OPERATION),  # 6
    (_EQUAL, 9, 0, _ARP_REPLY),  # 7: keep
    (_WORD, 0, 0, _ARP_SENDER),  # 8
    (_TO_X, 0, 0, 0),  # 9
    (_WORD, 0, 0, _ARP_TARGET),  # 10
    (_EQUAL_X, 5, 6, 0),  # 11: keep or drop
    # IPv6: a neighbour advertisement.
    (_EQUAL, 0, 5, _IPV6),  # 12: else drop
    (_BYTE, 0, 0, _IPV6_PROTOCOL),  # 13
    (_EQUAL, 0, 3, _ICMPV6),  # 14: else drop
    (_BYTE, 0, 0, _ICMPV6_TYPE),  # 15
    (_EQUAL, 0, 1, _ADVERTISEMENT),  # 16: else drop
    (_RETURN, 0, 0, _WHOLE_FRAME),  # 17: keep
    (_RETURN, 0, 0, 0),  # 18: drop
)


def listen(interface: str) -> socket.socket:
    """A socket that hears what may be a claim on an interface; OSError if that is gone."""
    # Of no protocol until it has its filter and its interface, so it never hears anything else.
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        opened.setblocking(False)
        opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        rows = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in FILTER))
        program = struct.pack("HP", len(FILTER), ctypes.addressof(rows))
        opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        opened.bind((interface, _ETH_P_ALL))
    except OSError:
        opened.close()
        raise
    return opened


class ConflictListener:
    """Guards the addresses that this node holds."""

    def __init__(self, on_conflict: Callable[[DuplicateAddress], None]) -> None:
        """`on_conflict` is called from the event loop, once for each conflict."""
        self._on_conflict = on_conflict
        self._watch = ConflictDetector()
        self._held: frozenset[Place] = frozenset()
        self._links: tuple[Link, ...] = ()
        self._ears: dict[int, socket.socket] = {}
        self._sender = FrameSender()
        # An interface was lost, or not to be had: look again, even if nothing else changes.
        self._is_deaf = False
        self._changed = asyncio.Event()

    def update(self, held: frozenset[Place], links: Iterable[Link], *, now: float) -> None:
        """Guard what is held, (link index, address), on the links of this node."""
        links = tuple(links)
        if not self._is_deaf and held == self._held and links == self._links:
            return
        self._held, self._links, self._is_deaf = held, links, False
        indexes = {index for index, _address in held}
        wanted = {link.index: link for link in links if link.index in indexes and _can_ask(link)}
        for index in self._ears.keys() - wanted.keys():
            self._close(index)
        for index in wanted.keys() - self._ears.keys():
            self._open(wanted[index])
        heard = (place for place in held if place[0] in self._ears)
        self._watch = self._watch.holding(heard, (link.mac for link in links), now=now)
        self._changed.set()

    def _open(self, link: Link) -> None:
        try:
            self._ears[link.index] = listen(link.name)
        except OSError as problem:
            log.warning("listenFailed", interface=link.name, error=str(problem))
            self._is_deaf = True
        else:
            loop = asyncio.get_running_loop()
            loop.add_reader(self._ears[link.index], self._read, link.index)

    def _close(self, index: int) -> None:
        ear = self._ears.pop(index)
        asyncio.get_running_loop().remove_reader(ear)
        ear.close()

    def close(self) -> None:
        """Stop listening and asking."""
        for index in tuple(self._ears):
            self._close(index)
        self._sender.close()

    def _read(self, index: int) -> None:
        for _frame in range(_BURST):
            try:
                claim = parse_claim(self._ears[index].recv(_LONGEST))
            except BlockingIOError:
                return
            except OSError:  # the interface went down, or for good: the socket may never hear again
                self._close(index)
                self._is_deaf = True
                return
            if claim is not None:
                self._heard(index, claim)

    def _heard(self, index: int, claim: AddressClaim) -> None:
        before = self._watch
        self._watch, conflict = before.heard(index, claim, now=clock.now())
        if self._watch is not before:
            self._changed.set()
        if conflict is not None:
            log.warning(
                "addressConflict",
                ip=conflict.address,
                interface=self._name(index),
                mac=conflict.mac.hex(":"),
            )
            self._on_conflict(conflict)

    def _name(self, index: int) -> str:
        return next(link.name for link in self._links if link.index == index)

    async def run(self) -> None:
        """Send the probes that are due until cancelled."""
        while True:
            self._changed.clear()
            self._probe(clock.now())
            wake_at = self._watch.next_at
            seconds = None if wake_at is None else max(0.0, wake_at - clock.now())
            try:
                async with asyncio.timeout(seconds):
                    await self._changed.wait()
            except TimeoutError:
                continue

    def _probe(self, now: float) -> None:
        self._watch, due = self._watch.due(now=now)
        by_link: dict[int, list[Address]] = defaultdict(list)
        for index, address in due:
            by_link[index].append(address)
        for link in self._links:
            if link.index in by_link and link.index in self._ears:
                self._ask(link, by_link[link.index])

    def _ask(self, link: Link, addresses: list[Address]) -> None:
        probes = (build_probe(link.mac, address) for address in addresses)
        try:
            self._sender.send(link.name, probes)
        except OSError as problem:
            log.warning("probeFailed", interface=link.name, error=str(problem))


def _can_ask(link: Link) -> bool:
    """Only Ethernet has ARP and neighbour messages of the form that is known here."""
    return link.is_up and len(link.mac) == _MAC_LENGTH

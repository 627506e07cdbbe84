# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Listens for other hosts that use this node's addresses, and probes for them.

One socket on each interface with addresses, and the task that sends the probes. Which claim proves
a conflict, when to probe, and what to announce again is decided in core/node/conflicts.
"""

from __future__ import annotations

import asyncio
import socket
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping

from purelb.core.model import Address, Link
from purelb.core.node.conflicts import ConflictDetector, DuplicateAddress, Place
from purelb.core.node.packets import AddressClaim, build_probe, parse_claim
from purelb_agent.node.sockets import FrameSender, listen_for_claims
from purelb_agent.runtime import clock, log
from purelb_agent.runtime.wakeup import Wakeup

_LONGEST = 2048
# Frames read before other tasks get their turn: a storm on the segment must not delay a renewal.
_BURST = 64


class ConflictListener:
    """Detects other hosts that use the addresses which this node holds."""

    def __init__(
        self,
        on_conflict: Callable[[DuplicateAddress], None],
        *,
        sender: FrameSender,
        listen: Callable[[str], socket.socket] = listen_for_claims,
    ) -> None:
        """`on_conflict` is called from the event loop, once for each conflict.

        `listen` opens a socket that receives the claims on an interface.
        """
        self._on_conflict = on_conflict
        self._sender = sender
        self._listen = listen
        self._detector = ConflictDetector()
        self._held: frozenset[Place] = frozenset()
        self._links: tuple[Link, ...] = ()
        self._nodes: Mapping[bytes, str] = {}
        self._sockets: dict[int, socket.socket] = {}
        # A socket failed or could not be opened: the next update retries even without a change.
        self._lacks_socket = False
        self._wakeup = Wakeup()
        self._settled: dict[Place, bool] = {}
        self._on_settled: Callable[[], None] = lambda: None

    def subscribe(self, on_settled: Callable[[], None]) -> None:
        """Call back when there is something urgent for `take_settled`."""
        self._on_settled = on_settled

    def answering_nodes(self, now: float) -> tuple[str, ...]:
        """Return the other nodes that answer for addresses of this one, sorted."""
        return self._detector.answering_nodes(now)

    def forgets_at(self, now: float) -> float | None:
        """Return when `answering_nodes` may have one less; None: not by itself."""
        return self._detector.forgets_at(now)

    def take_settled(self) -> dict[Place, bool]:
        """Return, once, what no other host has by a probe, and whether others had claimed it."""
        settled, self._settled = self._settled, {}
        return settled

    def update(
        self,
        held: frozenset[Place],
        links: Iterable[Link],
        *,
        nodes: Mapping[bytes, str],
        now: float,
    ) -> None:
        """Watch these addresses, (link index, address), and no others.

        `links`: all of the node. `nodes`: the other nodes by their MAC addresses.
        """
        links = tuple(links)
        is_same = held == self._held and links == self._links and nodes is self._nodes
        if is_same and not self._lacks_socket:
            return
        self._held, self._links, self._nodes, self._lacks_socket = held, links, nodes, False
        indexes = {index for index, _address in held}
        wanted = {link.index: link for link in links if link.index in indexes and _can_probe(link)}
        for index in self._sockets.keys() - wanted.keys():
            self._close(index)
        for index in wanted.keys() - self._sockets.keys():
            self._open(wanted[index])
        watched = (place for place in held if place[0] in self._sockets)
        macs = (link.mac for link in links)
        self._detector = self._detector.holding(watched, macs, nodes=nodes, now=now)
        self._wakeup.notify()

    def _open(self, link: Link) -> None:
        try:
            opened = self._listen(link.name)
        except OSError as error:
            log.warning("listenFailed", interface=link.name, error=str(error))
            self._lacks_socket = True
        else:
            self._sockets[link.index] = opened
            asyncio.get_running_loop().add_reader(opened, self._read, link.index)

    def _close(self, index: int) -> None:
        closing = self._sockets.pop(index)
        asyncio.get_running_loop().remove_reader(closing)
        closing.close()

    def close(self) -> None:
        """Close all sockets."""
        for index in tuple(self._sockets):
            self._close(index)

    def _read(self, index: int) -> None:
        for _frame in range(_BURST):
            try:
                claim = parse_claim(self._sockets[index].recv(_LONGEST))
            except BlockingIOError:
                return
            except OSError:
                # The interface went down or was removed: this socket may never receive again.
                self._close(index)
                self._lacks_socket = True
                return
            if claim is not None:
                self._handle(index, claim)

    def _handle(self, index: int, claim: AddressClaim) -> None:
        before = self._detector
        self._detector, conflict = before.heard(index, claim, now=clock.now())
        if self._detector is not before:
            self._wakeup.notify()
        if conflict is not None:
            log.warning(
                "addressConflict",
                ip=conflict.address,
                interface=self._name_of(index),
                mac=conflict.mac.hex(":"),
                node=conflict.node,
            )
            self._on_conflict(conflict)

    def _name_of(self, index: int) -> str:
        return next(link.name for link in self._links if link.index == index)

    async def run(self) -> None:
        """Send the probes when they are due, and tell what has settled, until cancelled."""
        while True:
            self._settle(clock.now())
            self._probe(clock.now())
            await self._wakeup.wait(until=self._detector.next_at)

    def _settle(self, now: float) -> None:
        self._detector, settled = self._detector.settled(now=now)
        self._settled |= settled
        if any(settled.values()):
            self._on_settled()

    def _probe(self, now: float) -> None:
        self._detector, due = self._detector.due(now=now)
        by_link: dict[int, list[Address]] = defaultdict(list)
        for index, address in due:
            by_link[index].append(address)
        for link in self._links:
            if link.index in by_link and link.index in self._sockets:
                self._send_probes(link, by_link[link.index])

    def _send_probes(self, link: Link, addresses: list[Address]) -> None:
        try:
            self._sender.send(link.name, [build_probe(link.mac, address) for address in addresses])
        except OSError as error:
            log.warning("probeFailed", interface=link.name, error=str(error))


def _can_probe(link: Link) -> bool:
    """Whether probes can be sent: only Ethernet has ARP and neighbour messages of this form."""
    return link.is_up and link.is_ethernet

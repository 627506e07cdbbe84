# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Hosts on a segment that are no nodes, and how they keep up what they know of their neighbours.

As Linux does by default: what was confirmed is good for 15 to 45 seconds. If it is used after
that, the neighbour has five seconds to show itself, then it is probed three times, a second apart.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from purelb.core.model import Address
from simulation.time.timeline import Appointment, Timeline

_REACHABLE = (15.0, 45.0)
_DELAY, _PROBES, _RETRANSMIT = 5.0, 3, 1.0
# Of a MAC address: whether who has it answers; without one the MAC address of who answers first.
Asks = Callable[[bytes | None], bytes | None]


class Host:
    """A host on the segment that is no node: keeps the MAC address of each address it asked for.

    `uses` are the addresses to which it sends all the time. `changed` are called with an address
    of which it knows something else now.
    """

    def __init__(self, name: str = "client") -> None:
        self.name = name
        self.neighbors: dict[Address, bytes] = {}
        self.uses: dict[Address, Use] = {}
        self.changed: list[Callable[[Address], None]] = []

    def hear(self, address: Address, mac: bytes) -> None:
        """Replace what is known, as hosts do that did not ask."""
        if address not in self.neighbors:
            return
        is_new = self.neighbors[address] != mac
        self.learn(address, mac)
        if is_new and address in self.uses:
            self.uses[address].doubt()

    def learn(self, address: Address, mac: bytes | None) -> None:
        """Know who has an address from now on; None: know nothing of it."""
        if mac is None:
            del self.neighbors[address]
        else:
            self.neighbors[address] = mac
        for changed in self.changed:
            changed(address)


class Use:
    """Traffic of a host to an address, so that its entry is looked after."""

    def __init__(
        self, timeline: Timeline, chance: random.Random, host: Host, address: Address, asks: Asks
    ) -> None:
        self._timeline, self._chance = timeline, chance
        self._host, self._address, self._asks = host, address, asks
        self._next: Appointment | None = None
        host.uses[address] = self
        self._resolve()

    def end(self) -> None:
        """Send nothing any more: the entry stays as it is."""
        if self._next is not None:
            self._next.cancel()
        del self._host.uses[self._address]

    def doubt(self) -> None:
        """Believe an announcement, but look whether who has sent it answers."""
        self._after(_DELAY, lambda: self._probe(_PROBES))

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        if self._next is not None:
            self._next.cancel()
        self._next = self._timeline.after(seconds, action)

    def _confirmed(self) -> None:
        self._after(self._chance.uniform(*_REACHABLE), self.doubt)

    def _probe(self, left: int) -> None:
        if not left:
            self._host.learn(self._address, None)
            self._resolve()
        elif self._asks(self._host.neighbors[self._address]) is not None:
            self._confirmed()
        else:
            self._after(_RETRANSMIT, lambda: self._probe(left - 1))

    def _resolve(self) -> None:
        mac = self._asks(None)
        if mac is None:
            self._after(_RETRANSMIT, self._resolve)
            return
        self._host.learn(self._address, mac)
        self._confirmed()

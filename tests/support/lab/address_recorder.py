# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Records which nodes hold an address, from the netlink notifications of all nodes' kernels.

An address counts as held as soon as it is on an interface, even while it is tentative or after
duplicate address detection refused it: presence counts, not usability; but not once the fence has
fallen shut, which is noticed up to 20 ms later. Notifications of several nodes that the reader
finds in one wake-up count as simultaneous.
"""

from __future__ import annotations

import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from itertools import groupby

from labkit.lab import Lab
from labkit.probe.addresses import NodeAddresses, Place

_LOOK_MS = 20  # how often the reader looks at the fences, and whether to stop
# A kernel notifies after a change, on a busy machine a while after. Lost notifications never come.
_NEWS_SECONDS = 2.0


@dataclass
class Holders:
    """The holders of some addresses over time: each change, as (time, address -> nodes)."""

    samples: list[tuple[float, dict[str, frozenset[str]]]] = field(default_factory=list)
    ended: float | None = None

    @property
    def now(self) -> dict[str, frozenset[str]]:
        """The holders of each address at the last change."""
        return self.samples[-1][1]

    def _stretches(
        self, vip: str, matches: Callable[[frozenset[str]], bool]
    ) -> list[tuple[bool, float]]:
        """Return consecutive stretches: whether the holders match, and for how many seconds."""
        samples = tuple(self.samples)
        begins = [moment for moment, _held in samples]
        ends = [*begins[1:], self.ended or time.monotonic()]
        spans = zip((matches(held[vip]) for _time, held in samples), begins, ends, strict=True)
        return [
            (is_match, sum(end - begin for _is_match, begin, end in stretch))
            for is_match, stretch in groupby(spans, key=lambda span: span[0])
        ]

    def seconds_with(self, vip: str, matches: Callable[[frozenset[str]], bool]) -> float:
        """Return for how long in total the holders of an address match."""
        return sum(seconds for is_match, seconds in self._stretches(vip, matches) if is_match)

    def longest_with(self, vip: str, matches: Callable[[frozenset[str]], bool]) -> float:
        """Return the longest time for which the holders of an address match without a break."""
        stretches = self._stretches(vip, matches)
        return max((seconds for is_match, seconds in stretches if is_match), default=0.0)

    def seconds_doubled(self, vip: str) -> float:
        """Return for how long in total two nodes or more held the address."""
        return self.seconds_with(vip, lambda nodes: len(nodes) > 1)

    def longest_doubled(self, vip: str) -> float:
        """Return the longest time for which two nodes or more held the address."""
        return self.longest_with(vip, lambda nodes: len(nodes) > 1)

    def longest_unheld(self, vip: str) -> float:
        """Return the longest time for which no node held the address."""
        return self.longest_with(vip, lambda nodes: not nodes)

    def sequence(self, vip: str) -> list[frozenset[str]]:
        """Return the successive holders, without repetitions."""
        return [nodes for nodes, _group in groupby(held[vip] for _time, held in self.samples)]


class _Reader(threading.Thread):
    """Records each change until it is stopped."""

    def __init__(self, lab: Lab, vips: tuple[str, ...], holders: Holders) -> None:
        super().__init__()
        self._vips = {vip: ip_address(vip) for vip in vips}
        self._nodes = {name: NodeAddresses(lab, name) for name in lab.nodes}
        self._holders = holders
        self._finished = threading.Event()
        self._note()

    def _note(self) -> None:
        now = time.monotonic()
        on = {name: node.addresses for name, node in self._nodes.items()}
        held = {
            vip: frozenset(name for name, addresses in on.items() if address in addresses)
            for vip, address in self._vips.items()
        }
        samples = self._holders.samples
        if not samples or samples[-1][1] != held:
            samples.append((now, held))

    def run(self) -> None:
        """Read notifications until stopped."""
        poll = select.poll()
        for node in self._nodes.values():
            poll.register(node.news, select.POLLIN)
        while not self._finished.is_set():
            if poll.poll(_LOOK_MS):
                for node in self._nodes.values():
                    node.read()
            self._note()

    def end(self) -> None:
        """Stop, and assert that no change was missed."""
        self._finished.set()
        self.join()
        self._holders.ended = time.monotonic()
        missed = {name: places for name, node in self._nodes.items() if (places := _missed(node))}
        for node in self._nodes.values():
            node.close()
        assert not missed, f"no notification of {missed} (interface, length, address)"


def _missed(node: NodeAddresses) -> set[Place]:
    """Return where notifications and addresses still differ after a time for late ones."""
    deadline = time.monotonic() + _NEWS_SECONDS
    while (places := node.disagreement()) and (left := deadline - time.monotonic()) > 0:
        select.select([node.news], [], [], left)
    return places


@contextmanager
def record_holders(lab: Lab, *vips: str) -> Iterator[Holders]:
    """Record in the background who holds these addresses; the first sample exists at once."""
    holders = Holders()
    reader = _Reader(lab, vips, holders)
    reader.start()
    try:
        yield holders
    finally:
        reader.end()

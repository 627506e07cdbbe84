# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which messages get through from whom to whom: lost ones, directions, and sides of a partition.

Who sends and who receives is known by name: that of a machine, or of a host.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable

from simulation.chance import stream


class Paths:
    """The ways from each sender to each receiver; whole unless told otherwise.

    `changed` are called back after each change of what can get through.
    """

    def __init__(self, seed: int, name: str) -> None:
        self.changed: list[Callable[[], None]] = []
        self._seed, self._name = seed, name
        self._everywhere = 0.0
        self._lost: dict[tuple[str, str], float] = {}
        self._sides: dict[str, int] = {}
        self._draws: dict[tuple[str, str], random.Random] = {}

    def lose_everywhere(self, share: float) -> None:
        """Lose this share of all messages."""
        self._everywhere = share
        self._tell()

    def lose(self, sender: str, receiver: str, share: float = 1.0) -> None:
        """Lose this share of what one sends to the other, and nothing of the opposite direction."""
        self._lost[sender, receiver] = share
        self._tell()

    def divide(self, *sides: Iterable[str]) -> None:
        """Let nothing get from one side to another; who is named nowhere is on the first."""
        self._sides = {name: number for number, side in enumerate(sides) for name in side}
        self._tell()

    def heal(self) -> None:
        """Let everything get through again."""
        self._everywhere = 0.0
        self._lost.clear()
        self._sides.clear()
        self._tell()

    def lost(self, sender: str, receiver: str) -> float:
        """Return the share of messages that get lost."""
        if self._sides.get(sender, 0) != self._sides.get(receiver, 0):
            return 1.0
        return max(self._everywhere, self._lost.get((sender, receiver), 0.0))

    def connects(self, one: str, other: str) -> bool:
        """Whether messages get through in both directions, at least some."""
        return self.lost(one, other) < 1 and self.lost(other, one) < 1

    def passes(self, sender: str, receiver: str) -> bool:
        """Whether the next message gets through."""
        share = self.lost(sender, receiver)
        if not 0 < share < 1:
            return share == 0
        pair = sender, receiver
        if pair not in self._draws:
            # Of its own, so that what one pair loses does not depend on how much others say.
            self._draws[pair] = stream(self._seed, self._name, "lost", *pair)
        return self._draws[pair].random() >= share

    def _tell(self) -> None:
        for changed in self.changed:
            changed()

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What is between the nodes: segments, and the network of the agents' questions."""

from __future__ import annotations

from collections.abc import Sequence

from purelb.core.model import Address
from simulation.node.hosts import Host
from simulation.node.http import Network
from simulation.node.paths import Paths
from simulation.node.wire import Segment


class Between:
    """Segments, by numbers, and a network, and what is lost on them."""

    def __init__(self, network: Network) -> None:
        self.segments: list[Segment] = []
        self.network = network

    def number_of(self, address: Address) -> int | None:
        """Return the number of the segment on which an address is; None if it is on none."""
        on = (n for n, each in enumerate(self.segments) if any(address in net for net in each.nets))
        return next(on, None)

    @property
    def hosts(self) -> list[Host]:
        """The hosts of all segments."""
        return [host for segment in self.segments for host in segment.hosts]

    @property
    def paths(self) -> list[Paths]:
        """The ways of frames on each segment, and those of the agents' questions."""
        return [*(segment.paths for segment in self.segments), self.network.paths]

    def lose(self, sender: str, receiver: str, share: float = 1.0) -> None:
        """Lose this share of the frames, questions and replies of one direction."""
        for paths in self.paths:
            paths.lose(sender, receiver, share)

    def cut(self, one: str, other: str) -> None:
        """Let nothing get from a node to another one, as a cable or a port that is broken."""
        self.lose(one, other)
        self.lose(other, one)

    def divide(self, *sides: Sequence[str]) -> None:
        """Divide the segments; hosts, too, are on one side each, or on the first one."""
        for paths in self.paths:
            paths.divide(*sides)

    def heal(self) -> None:
        """Let everything get through on the segments again."""
        for paths in self.paths:
            paths.heal()

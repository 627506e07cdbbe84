# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""For how long a subnet that a node is in no longer still counts.

DHCP clients and network managers take an address or a default route away and add it again, and an
interface that was down for a moment checks its IPv6 addresses again. Addresses of Services that go
and return take longer to be reachable than those that stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import FrozenSet, Iterable, Mapping, Optional, Tuple

from ..addresses import subnet_order
from ..model import Link, Network

# Duplicate address detection takes up to two seconds.
PATIENCE = 3.0
# The index of the link, and the subnet.
Segment = Tuple[int, Network]


@dataclass(frozen=True)
class LostSegments:
    """The segments at the last read, and until when each that has been lost still counts."""

    present: FrozenSet[Segment] = frozenset()
    until: Mapping[Segment, float] = field(default_factory=dict)

    def seen(
        self, segments: Iterable[Tuple[Link, Network]], links: Iterable[Link], *, now: float
    ) -> LostSegments:
        """Return the state after a read; `links`: all of the node.

        A subnet that is on another link now is not lost, and one without a carrier is not waited
        for.
        """
        present = frozenset((link.index, network) for link, network in segments)
        networks = {network for _index, network in present}
        working = {link.index for link in links if link.has_carrier}
        ends = {**dict.fromkeys(self.present, now + PATIENCE), **self.until}
        until = {
            (index, network): end
            for (index, network), end in ends.items()
            if network not in networks and index in working and now < end
        }
        return LostSegments(present, until)

    def kept(self, links: Iterable[Link]) -> Tuple[Tuple[Link, Network], ...]:
        """Return the lost segments that still count, in the order of links and subnets."""
        by_index = {link.index: link for link in links}
        ordered = sorted(self.until, key=lambda segment: (segment[0], subnet_order(segment[1])))
        return tuple((by_index[index], network) for index, network in ordered)

    def next_at(self) -> Optional[float]:
        """When the next one counts no more; None if none was lost."""
        return min(self.until.values(), default=None)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""When to announce a gained address on the segment: immediately, then in a short sequence.

By default, each frame is sent only if the address is still held at that moment, so the sequence of
a lost address ends at once.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Dict, Iterable, List, Mapping, Optional, Tuple

from ..model import Address
from ..settings import AnnounceConfig


def sequence(config: AnnounceConfig, now: float) -> Tuple[float, ...]:
    """Return the times at which to announce an address gained now."""
    if not config.enabled:
        return ()
    return (now, *(now + config.delay + i * config.interval for i in range(config.count)))


@dataclass(frozen=True)
class Announcements:
    """Pending announcements: (link index, address) to their times, earliest first."""

    pending: Mapping[Tuple[int, Address], Tuple[float, ...]] = field(default_factory=dict)

    def gained(
        self, places: Iterable[Tuple[int, Address]], config: AnnounceConfig, *, now: float
    ) -> Announcements:
        """Start the sequence of each address, again from the beginning if one is running."""
        times = sequence(config, now)
        if not times:
            return self
        return replace(self, pending={**self.pending, **dict.fromkeys(places, times)})

    def due(
        self, held: Iterable[Tuple[int, Address]], config: AnnounceConfig, *, now: float
    ) -> Tuple[Announcements, List[Tuple[int, Address]]]:
        """Return what is left afterwards, and what to announce now.

        With `verify`, addresses that are no longer held are dropped. Several missed times, for
        example while the process was frozen, lead to one announcement.
        """
        holding = set(held)
        frames: List[Tuple[int, Address]] = []
        left: Dict[Tuple[int, Address], Tuple[float, ...]] = {}
        for place, times in self.pending.items():
            if config.verify and place not in holding:
                continue
            later = tuple(t for t in times if t > now)
            if len(later) < len(times):
                frames.append(place)
            if later:
                left[place] = later
        return Announcements(left), frames

    @property
    def next_at(self) -> Optional[float]:
        """When the next announcement is due; None if there is none."""
        return min((times[0] for times in self.pending.values()), default=None)

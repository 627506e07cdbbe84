# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""For how long an interface that has lost its carrier still counts as one that has it.

No host hears a node whose cable is out, so another one must have its addresses. But a switch or a
cable may flap, and addresses that go and return take longer to be reachable than those that stay.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Iterable, Mapping, Optional, Tuple

from ..model import Link

PATIENCE = 2.0
_ALWAYS = float("inf")


@dataclass(frozen=True)
class Carriers:
    """Until when each link counts as one with a carrier, by its index.

    One that had none when it was first seen is not waited for.
    """

    until: Mapping[int, float] = field(default_factory=dict)

    def seen(self, links: Iterable[Link], *, now: float) -> Carriers:
        """Return the state after the links were read."""

        def until(link: Link) -> float:
            if link.has_carrier:
                return _ALWAYS
            return min(self.until.get(link.index, -_ALWAYS), now + PATIENCE)

        return Carriers({link.index: until(link) for link in links})

    def kept(self, links: Iterable[Link], *, now: float) -> Tuple[Link, ...]:
        """Return the links; those that have lost their carrier only now still have it."""
        return tuple(
            replace(link, has_carrier=True)
            if not link.has_carrier and now < self.until[link.index]
            else link
            for link in links
        )

    def next_at(self, now: float) -> Optional[float]:
        """When a link will count as one without a carrier; None if none will."""
        return min((until for until in self.until.values() if now < until < _ALWAYS), default=None)

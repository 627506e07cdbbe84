# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Until when a node may hold addresses: when it withdraws them, and when others may take them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

# How long a frame may be on its way that a node sent with its last right.
_ON_ITS_WAY = 0.02


@dataclass(frozen=True)
class HoldDeadline:
    """Until when a node may hold addresses, on its own monotonic clock.

    `announce_until`: the agent withdraws its addresses at this time. `hold_until`: the peers may
    take over from this time on; the kernel has then removed what a dead or frozen agent left.
    `is_agreed`: it rests on what the neighbors agreed to, as the own Lease is not renewed.
    """

    announce_until: float
    hold_until: float
    is_agreed: bool = False

    @property
    def silent_at(self) -> float:
        """From when on the fence lets nothing through any more; what it let through is on its way.

        A frame may wait in the interface's queue, and clocks are compared in milliseconds.
        """
        return self.hold_until - _ON_ITS_WAY

    def limited_to(self, other: Optional[HoldDeadline]) -> HoldDeadline:
        """Return the earlier of two deadlines; None is no limit."""
        if other is None:
            return self
        return HoldDeadline(
            min(self.announce_until, other.announce_until), min(self.hold_until, other.hold_until)
        )

    def extended_to(self, other: HoldDeadline, *, is_agreed: bool) -> HoldDeadline:
        """Return the later of two deadlines."""
        return HoldDeadline(
            max(self.announce_until, other.announce_until),
            max(self.hold_until, other.hold_until),
            is_agreed,
        )


def is_prolonged(
    before: Optional[HoldDeadline], after: Optional[HoldDeadline], *, now: float
) -> bool:
    """Whether a renewal in time is all that happened between two deadlines."""
    if before is None or after is None or before.is_agreed or after.is_agreed:
        return False
    return now < before.announce_until <= after.announce_until

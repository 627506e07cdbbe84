# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Whether an agent is ready after its start, so that a rollout may restart the next one.

It is ready once every step of its first plan was tried and the kernel has finished duplicate
address detection (IPv6). A step that failed and an address that another host has also count as
finished: a fault of one node must not block the rollout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Iterable, Optional

from ..model import InterfaceAddress
from .left import Place
from .plan import Plan

# Seconds. Detection takes one or two; on a link without carrier it never starts.
PATIENCE = 10.0


@dataclass(frozen=True)
class Readiness:
    """Addresses of the first plan that are not usable yet; `probed` is None before that plan."""

    probed: Optional[FrozenSet[Place]] = None
    until: float = 0.0

    @property
    def has_acted(self) -> bool:
        """Whether a plan has been applied."""
        return self.probed is not None

    def is_ready(self, now: float) -> bool:
        """Whether the agent is ready at this time."""
        return self.probed is not None and (not self.probed or now >= self.until)

    def after(
        self,
        made: Plan,
        held: FrozenSet[Place],
        addresses: Iterable[InterfaceAddress],
        *,
        now: float,
    ) -> Readiness:
        """Return the state after a plan was applied; `addresses` existed before it."""
        if self.probed is None:
            fresh = {(p.link, p.address) for p in made.puts if p.is_new and not p.usable_at_once}
            return Readiness(held & fresh, now + PATIENCE)
        if not self.probed:
            return self
        tentative = {(a.link, a.address) for a in addresses if a.tentative and not a.dad_failed}
        return Readiness(self.probed & tentative, self.until)

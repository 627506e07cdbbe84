# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Whether a node has done, since its start, what it could: then the next one may be restarted.

Every step of the first plan has been tried by then, and what the kernel still asked the wire about
(duplicate address detection of IPv6) has an answer. A step that was refused, and an address that is
somebody else's, count as answered: a fault of one node must not keep a new version from the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import FrozenSet, Iterable, Optional

from ..model import InterfaceAddress
from .plan import Plan
from .snapshot import Place

# Detection takes a second or two. On a link without carrier it does not even begin.
PATIENCE = 10.0


@dataclass(frozen=True)
class Readiness:
    """Addresses of the first plan that are not usable yet; None before there was a plan."""

    probed: Optional[FrozenSet[Place]] = None
    until: float = 0.0

    @property
    def has_acted(self) -> bool:
        """Whether a plan has been carried out."""
        return self.probed is not None

    def is_ready(self, now: float) -> bool:
        """Whether nothing is left to wait for."""
        return self.probed is not None and (not self.probed or now >= self.until)

    def after(
        self,
        made: Plan,
        held: FrozenSet[Place],
        addresses: Iterable[InterfaceAddress],
        *,
        now: float,
    ) -> Readiness:
        """Take note of a plan that was carried out; `addresses` is what there was before it."""
        if self.probed is None:
            fresh = {(p.link, p.address) for p in made.puts if p.is_new and not p.usable_at_once}
            return Readiness(held & fresh, now + PATIENCE)
        if not self.probed:
            return self
        tentative = {(a.link, a.address) for a in addresses if a.tentative and not a.dad_failed}
        return Readiness(self.probed & tentative, self.until)

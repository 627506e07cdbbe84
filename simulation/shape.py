# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""How clusters differ: in their segments, versions of IP, kernels and Services."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from purelb.core.settings import TimingChoice
from simulation.node.wire import Net

# As by default, or with Leases for which even a kernel without a fence has much time.
AUTO, LONG = TimingChoice(), TimingChoice(10.0, 7.0, 2.0)


class Other(Enum):
    """Which nodes another segment has, which has subnets and a group of its own."""

    NONE = "there is no other one"
    RACK = "every second node is on it alone"
    LINK = "every second node is on it as well, by a second interface"


class Fenced(Enum):
    """Which nodes have a kernel that lets the agent's fence in."""

    ALL = "all"
    SECONDS = "every second one, as while nodes are updated"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class Shape:
    """How a cluster is built.

    `versions`: of IP, of nodes and Services. `is_varied`: Services ask for addresses, share them,
    have one family alone or an address of a remote pool. `timing`: what nodes say of their Leases.
    """

    other: Other = Other.NONE
    versions: tuple[int, ...] = (4, 6)
    is_varied: bool = False
    fenced: Fenced = Fenced.ALL
    timing: TimingChoice = LONG

    def is_fenced(self, name: str) -> bool:
        """Whether a node's kernel lets the fence in."""
        return self.fenced is Fenced.ALL or (self.fenced is Fenced.SECONDS and self.is_second(name))

    def is_second(self, name: str) -> bool:
        """Whether a node is one of the second ones, by the number in its name."""
        return int("".join(re.findall(r"\d", name)) or "0") % 2 == 0

    def of_versions(self, nets: Sequence[Net]) -> tuple[Net, ...]:
        """Return those subnets that are of its versions of IP."""
        return tuple(net for net in nets if net.version in self.versions)

    @property
    def families(self) -> tuple[str, ...]:
        """The families of its Services."""
        return tuple(f"IPv{version}" for version in self.versions)

    @property
    def policy(self) -> str:
        """What its Services say of their families."""
        return "SingleStack" if len(self.versions) == 1 else "RequireDualStack"


PLAIN = Shape()

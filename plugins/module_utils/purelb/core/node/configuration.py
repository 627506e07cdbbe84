# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which LBNodeAgent object applies to a node, and what it says.

An object whose selector names something beats one that selects every node; among equals the first
by name wins. Where there are objects and none selects a node, that node announces nothing; where
there are none at all, the defaults hold.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Iterable, Mapping, Optional, Pattern, Tuple

from ..names import DUMMY_INTERFACE
from ..settings import ON_DUMMY, AddressConfig, AnnounceConfig


class SelectorState(str, Enum):
    """How a node came by its configuration: the metric's label and the log's word."""

    DEFAULT = "default"
    CONFIGURED = "configured"
    DESELECTED = "deselected"
    INVALID = "invalid"


@dataclass(frozen=True)
class Requirement:
    """One line of a label selector, as Kubernetes defines it."""

    key: str
    operator: str
    values: Tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a node's labels meet it."""
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        is_in = labels.get(self.key) in self.values
        return is_in if self.operator == "In" else not is_in


@dataclass(frozen=True)
class NodeConfig:
    """An LBNodeAgent object. `problem` says why it cannot be used."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    selector: Tuple[Requirement, ...] = ()
    local_interface: str = "default"
    interfaces: Tuple[str, ...] = ()
    dummy_interface: str = DUMMY_INTERFACE
    announce: AnnounceConfig = field(default_factory=AnnounceConfig)
    addresses: AddressConfig = field(default_factory=AddressConfig)
    dummy_addresses: AddressConfig = ON_DUMMY
    problem: str = ""

    @property
    def pattern(self) -> Optional[Pattern[str]]:
        """The expression for interface names, or None for one of the two words."""
        if self.local_interface in ("default", "none"):
            return None
        return re.compile(self.local_interface)


# What holds on a node without a usable configuration.
NOWHERE = NodeConfig(local_interface="none", dummy_interface="")


@dataclass(frozen=True)
class SelectedConfig:
    """What applies to a node; without a configuration it announces nothing."""

    state: SelectorState
    config: Optional[NodeConfig]


def choose(configs: Iterable[NodeConfig], labels: Mapping[str, str]) -> SelectedConfig:
    """Find the configuration of a node with these labels."""
    known = tuple(configs)
    if not known:
        return SelectedConfig(SelectorState.DEFAULT, NodeConfig())
    matching = [c for c in known if all(one.matches(labels) for one in c.selector)]
    if not matching:
        return SelectedConfig(SelectorState.DESELECTED, None)
    best = min(matching, key=lambda c: (not c.selector, c.name))
    return SelectedConfig(SelectorState.INVALID if best.problem else SelectorState.CONFIGURED, best)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which LBNodeAgent object applies to a node, and its settings.

An object with a selector takes precedence over one that selects every node; among equals, the first
by name wins. If objects exist and none selects a node, that node announces nothing. Without any
object, the defaults apply.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Iterable, Mapping, Optional, Pattern, Sequence, Tuple

from ..names import DUMMY_INTERFACE
from ..settings import ON_DUMMY, AddressConfig, AnnounceConfig

# Parts of expressions, and what they match in a name; all others are left out.
_PLACEHOLDERS = re.compile(r"\\.|\[0-9\]|[.^$+*?]")
_PLAIN = {r"\.": ".", r"\d": "0", "[0-9]": "0", ".": "0"}
# Names of interfaces as drivers, systemd and administrators give them.
_USUAL_NAMES = ("eth0", "ens3", "eno1", "enp1s0", "bond0", "team0", "br0", "lan0", "vlan0")


class SelectorState(str, Enum):
    """How the configuration of a node was selected, as metric label and in the log."""

    DEFAULT = "default"
    CONFIGURED = "configured"
    DESELECTED = "deselected"
    INVALID = "invalid"


@dataclass(frozen=True)
class Requirement:
    """One requirement of a Kubernetes label selector."""

    key: str
    operator: str
    values: Tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether a node's labels satisfy it."""
        if self.operator == "Exists":
            return self.key in labels
        if self.operator == "DoesNotExist":
            return self.key not in labels
        is_in = labels.get(self.key) in self.values
        return is_in if self.operator == "In" else not is_in


@dataclass(frozen=True)
class NodeConfig:
    """An LBNodeAgent object; `problem` has the reason if it is invalid."""

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
    # Without spec.local an object configures nothing.
    has_local: bool = True

    @property
    def pattern(self) -> Optional[Pattern[str]]:
        """The regular expression for interface names; None for `default` and `none`."""
        if self.local_interface in ("default", "none"):
            return None
        return re.compile(self.local_interface)


def matches_a_part(pattern: Pattern[str], names: Iterable[str]) -> bool:
    """Whether an expression matches a part of one of these names, hardly on purpose.

    It is searched in names, as in the Go implementation: `eth0` selects eth0.100 and veth0a1b, too.
    A beginning such as `^eth` is on purpose, unless it is the whole of another name.
    """
    found = list(filter(None, map(pattern.search, names)))
    parts = [match.start() for match in found if match.group() != match.string]
    return any(parts) or 0 < len(parts) < len(found)


def also_matches(expression: str) -> str:
    """Return a name that an expression probably matches against the intention; "" if none.

    It is made from a name that the expression matches as a whole.
    """
    pattern = re.compile(expression)
    plain = _PLACEHOLDERS.sub(lambda found: _PLAIN.get(found.group(), ""), expression)
    for name in (plain, *_USUAL_NAMES):
        if pattern.fullmatch(name):
            others = [f"{name}.100", f"{name}1"] if name[-1:].isdigit() else []
            for other in [*others, f"v{name}"]:
                if matches_a_part(pattern, (name, other)):
                    return other
    return ""


# The settings of a node without a valid configuration.
NOWHERE = NodeConfig(local_interface="none", dummy_interface="")


@dataclass(frozen=True)
class SelectedConfig:
    """The configuration of a node; with None it announces nothing."""

    state: SelectorState
    config: Optional[NodeConfig]


def deselected(
    configs: Sequence[NodeConfig], nodes: Mapping[str, Mapping[str, str]]
) -> Tuple[str, ...]:
    """Return the nodes, sorted, that no configuration selects; `nodes` maps each to its labels."""
    return tuple(sorted(n for n, labels in nodes.items() if not choose(configs, labels).config))


def choose(configs: Iterable[NodeConfig], labels: Mapping[str, str]) -> SelectedConfig:
    """Return the configuration that applies to a node with these labels.

    Objects without `spec.local` are skipped: where no other object exists, the default stays.
    """
    known = tuple(config for config in configs if config.has_local)
    if not known:
        return SelectedConfig(SelectorState.DEFAULT, NodeConfig())
    matching = [c for c in known if all(term.matches(labels) for term in c.selector)]
    if not matching:
        return SelectedConfig(SelectorState.DESELECTED, None)
    best = min(matching, key=lambda c: (not c.selector, c.name))
    return SelectedConfig(SelectorState.INVALID if best.problem else SelectorState.CONFIGURED, best)

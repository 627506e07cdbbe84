# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The rows of the audit page, as its template prints them."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Tuple


class Mark(str, Enum):
    """The worst finding about a row: none, a warning or an error."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class NodeRow:
    """A node; `share` is the elapsed percentage of its Lease, `reason` why it has no live one."""

    name: str
    mark: Mark
    state: str
    wins: int
    holds: int
    reason: str
    age: str = ""
    share: int = 0
    subnets: Tuple[str, ...] = ()
    outage: str = ""


@dataclass(frozen=True)
class SubnetColumn:
    """A subnet, the number of its candidates and the number of its VIPs."""

    subnet: str
    candidates: int
    addresses: int


@dataclass(frozen=True)
class MatrixRow:
    """A node: each cell is `candidate`, `absent` (in the subnet, but not a candidate) or ``."""

    node: str
    mark: Mark
    cells: Tuple[str, ...]


@dataclass(frozen=True)
class VipRow:
    """An address; `after` are the next winners."""

    address: str
    family: str
    services: Tuple[str, ...]
    pool: str
    pool_type: str
    winner: str
    holders: Tuple[str, ...]
    after: Tuple[str, ...]
    mark: Mark
    state: str


@dataclass(frozen=True)
class PoolRow:
    """A range of a ServiceGroup; `problem` is the reason if a group has none."""

    group: str
    pool_type: str
    family: str = ""
    range: str = ""
    subnet: str = ""
    used: int = 0
    size: str = ""
    share: int = 0
    mark: Mark = Mark.OK
    state: str = ""
    problem: str = ""


@dataclass(frozen=True)
class LockRow:
    """A leader lock."""

    name: str
    holder: str
    mark: Mark
    state: str
    age: str
    share: int
    held_for: str
    transitions: int


@dataclass(frozen=True)
class Page:
    """The content of the page."""

    mark: Mark
    verdict: str
    errors: int
    warnings: int
    # Nodes that take part in elections, and those that should.
    live: int
    expected: int
    nodes: Tuple[NodeRow, ...]
    subnets: Tuple[SubnetColumn, ...]
    matrix: Tuple[MatrixRow, ...]
    vips: Tuple[VipRow, ...]
    pools: Tuple[PoolRow, ...]
    locks: Tuple[LockRow, ...]

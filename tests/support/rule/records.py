# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What is known of the nodes of a small world, of its API server and its faults."""

from __future__ import annotations

from dataclasses import dataclass, field
from ipaddress import IPv4Address, ip_network

from purelb.core.holding.counting import Counting
from purelb.core.holding.permissions import PermissionAnswer, PermissionQuestion, Permissions
from purelb.core.holding.right import Right
from purelb.core.model import Lease
from purelb.core.settings import LeaseTiming

VIP = IPv4Address("192.0.2.1")
IT = frozenset({VIP})
# The subnet of the address, and another one.
ITS, OTHER = ip_network("192.0.2.0/24"), ip_network("198.51.100.0/24")
TIMING = LeaseTiming(duration=6, renew_deadline=4, retry_period=1)
_NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Fault:
    """Something that is wrong until a tick: of one node, or of what one sends to another."""

    kind: str
    node: str
    until: int
    other: str = ""


@dataclass(frozen=True)
class Written:
    """One change in the API server's log: a Lease, or the taint of a Node."""

    node: str
    lease: Lease | None = None
    is_deleted: bool = False
    taint: bool | None = None


@dataclass(frozen=True)
class SentRenewal:
    """A renewal without an answer so far; `at`: when it was sent, `acts_at`: when it is written."""

    lease: Lease
    at: int
    acts_at: int


@dataclass(frozen=True)
class Node:
    """A node: its agent, None while it does not run, and its kernel.

    `read`: how much of the log the agent has seen; `acted`: it has made its first plan.
    `kernel_until`: when the kernel removes the address that it holds. `resigned`: an epoch that is
    over, and the peers that have not been told. `late`: answers that arrive in the next tick;
    `posted`: those that it gives by its Lease. `under_way`: renewals; `failing_since`: when the
    first one after the last that succeeded was sent. `heard`: which peers said that they can renew,
    when, and when they had.
    """

    name: str
    starts: int = 0
    right: Right | None = None
    counting: Counting = field(default_factory=Counting)
    permissions: Permissions = field(default_factory=lambda: Permissions(""))
    read: int = 0
    tainted: frozenset[str] = _NOBODY
    acted: bool = False
    holds: bool = False
    kernel_until: float = 0
    next_write: float = 0
    under_way: tuple[SentRenewal, ...] = ()
    failing_since: int | None = None
    heard: tuple[tuple[str, int, float], ...] = ()
    resigned: tuple[str, frozenset[str]] = ("", _NOBODY)
    late: tuple[tuple[str, PermissionAnswer], ...] = ()
    nonce: int = 0
    posted: tuple[tuple[str, PermissionAnswer], ...] = ()

    @property
    def is_in_doubt(self) -> bool:
        """Whether renewals fail, have no answer, or take so long that the next may be late."""
        right = self.right
        return right is not None and (
            right.is_failing or bool(self.under_way) or not right.is_quick
        )

    @property
    def held(self) -> frozenset[IPv4Address]:
        return IT if self.holds else frozenset()


@dataclass(frozen=True)
class PostedLease(Lease):
    """A Lease with the questions to peers that cannot be reached, and answers to such questions."""

    questions: tuple[PermissionQuestion, ...] = ()
    answers: tuple[tuple[str, PermissionAnswer], ...] = ()


class TwoHoldersError(AssertionError):
    """Two kernels have the address."""

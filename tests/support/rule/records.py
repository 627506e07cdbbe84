# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What is known of the nodes of a small world, of its API server and its faults."""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, ip_network
from typing import NamedTuple

from purelb.core.holding.holder import Holder, Replies
from purelb.core.holding.permissions import PermissionAnswer, PermissionQuestion
from purelb.core.holding.right import Renewal, Right
from purelb.core.model import Address, Lease
from purelb.core.settings import LeaseTiming

VIP = IPv4Address("192.0.2.1")
IT: frozenset[Address] = frozenset({VIP})
# The subnet of the address, and another one.
ITS, OTHER = ip_network("192.0.2.0/24"), ip_network("198.51.100.0/24")
TIMING = LeaseTiming(duration=6, renew_deadline=4, retry_period=1)
# What a Lease says while its node has chosen a longer duration.
LONGER = LeaseTiming(duration=14, renew_deadline=10, retry_period=1)
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


class SlowRenewal(NamedTuple):
    """A renewal without an answer so far; `acts_at`: when it is written."""

    renewal: Renewal
    lease: Lease
    acts_at: int


@dataclass(frozen=True)
class Node:
    """A node: the Holder of its agent, None while it does not run, and its kernel.

    `read`: how much of the log the agent has seen. `kernel_until`: when the kernel removes the
    address that it holds. `slow`: its renewals without an answer. `mail`: what its Lease is to say
    to those that it does not reach; `replies`: what it answered last; `late`: answers that arrive
    in the next tick.
    """

    name: str
    starts: int = 0
    holder: Holder | None = None
    read: int = 0
    tainted: frozenset[str] = _NOBODY
    holds: bool = False
    kernel_until: float = 0
    slow: tuple[SlowRenewal, ...] = ()
    mail: str = ""
    replies: Replies = ()
    late: tuple[tuple[PermissionQuestion, PermissionAnswer], ...] = ()
    nonce: int = 0

    @property
    def right(self) -> Right | None:
        """The right by which it may hold; None while its agent does not run."""
        return None if self.holder is None else self.holder.right

    @property
    def held(self) -> frozenset[Address]:
        return IT if self.holds else frozenset()


class TwoHoldersError(AssertionError):
    """Two kernels have the address."""

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which addresses a Service gets: decided for one Service at a time, by what all others have.

The cluster is the database: what is taken is what the Services' status says, read once at start and
kept in step from then on. What a Service has it keeps, whatever becomes of its pool, until it asks
for something else, or until another Service turns out to have it too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, List, Optional, Tuple, Union

from .groups import Groups
from .ledger import Conflict, Ledger
from .model import Address, AddressRange, Network, PoolType, Service, ServiceGroup
from .names import (
    ADDRESSES_ANNOTATION,
    FAMILIES,
    LOAD_BALANCER_CLASSES,
    MULTI_POOL_ANNOTATION,
    SHARING_ANNOTATION,
)
from .refusals import RefusalReason, RefusedError


@dataclass(frozen=True)
class Live:
    """Where addresses can be announced now: subnets of live Leases, and whether there is one."""

    subnets: FrozenSet[Network] = frozenset()
    has_nodes: bool = False

    def serves(self, one: AddressRange, pool_type: PoolType) -> bool:
        """Whether a node could announce addresses of the range."""
        if pool_type is PoolType.REMOTE:
            return self.has_nodes
        return any(one.first in subnet or one.last in subnet for subnet in self.subnets)


@dataclass(frozen=True)
class Assignment:
    """The Service is to have exactly these addresses from this group."""

    group: str
    addresses: Tuple[Address, ...]
    pool_type: PoolType
    skip_dad: bool
    # One of each range; `partial` has those that had none left.
    is_multi: bool = False
    partial: Tuple[AddressRange, ...] = ()
    is_balanced: bool = False
    # externalTrafficPolicy is to become Cluster: a local address is on one node only.
    sets_cluster: bool = False


@dataclass(frozen=True)
class Refusal:
    """The Service gets nothing more: why, and what its owner can do. It goes on with `keeps`."""

    group: str
    reason: RefusalReason
    message: str
    keeps: Tuple[Address, ...] = ()


@dataclass(frozen=True)
class Keep:
    """The Service has what it should have; `stray` is what no range of its group holds any more."""

    stray: Tuple[Address, ...] = ()


@dataclass(frozen=True)
class Release:
    """The Service is to have no address of ours."""


Outcome = Union[Assignment, Refusal, Keep, Release]


def is_ours(service: Service, classes: FrozenSet[Optional[str]]) -> bool:
    """Whether a Service asks us for an address, by its type and class; None stands for no class."""
    return service.is_load_balancer and service.load_balancer_class in classes


ALL_CLASSES: FrozenSet[Optional[str]] = frozenset({None, *LOAD_BALANCER_CLASSES})


def rebuild(services: Iterable[Service]) -> Ledger:
    """What is taken according to the Services' status.

    Where two Services claim one address and cannot share it, the one that sorts first keeps it: any
    rule that does not depend on the order of a list will do, because `decide` gives the other a new
    one.
    """
    ledger = Ledger()
    for service in sorted(services, key=lambda s: (not s.allocated_by_us, str(s.key))):
        if service.is_load_balancer:
            ledger.hold(service, _unclaimed(service, service.addresses, ledger))
    return ledger


def _unclaimed(
    service: Service, addresses: Iterable[Address], ledger: Ledger
) -> Tuple[Address, ...]:
    return tuple(a for a in addresses if ledger.conflict(a, service) is None)


def decide(
    service: Service,
    groups: Groups,
    ledger: Ledger,
    live: Live,
    *,
    classes: FrozenSet[Optional[str]] = ALL_CLASSES,
) -> Outcome:
    """Decide what is to happen to one Service."""
    if not is_ours(service, classes):
        return Release() if service.allocated_by_us else Keep()
    # After what the Service shows comes what was given to it and it does not show yet.
    reserved = sorted(ledger.of(service.key), key=int)
    shown = _unclaimed(service, dict.fromkeys((*service.addresses, *reserved)), ledger)
    keeps = tuple(a for a in shown if a in service.addresses)
    try:
        _check_spelling(service)
        if service.allocated_by_us and shown and _is_orphan(service, groups):
            return Keep(shown)
        group = groups.of(service, shown if service.allocated_by_us else ())
        return _Choice(service, group, ledger, live, shown).outcome()
    except RefusedError as refused:
        return Refusal(refused.group, refused.reason, refused.message, keeps)


def _check_spelling(service: Service) -> None:
    if service.malformed:
        raise RefusedError(
            RefusalReason.INVALID_ADDRESS,
            service.group or "",
            f"{service.malformed[0]!r} is no IP address: write addresses separated by commas in "
            f"the annotation {ADDRESSES_ANNOTATION}",
        )


def _is_orphan(service: Service, groups: Groups) -> bool:
    """Whether the group that the Service has its addresses of, and goes on with, is gone."""
    name = service.allocated_from or ""
    asks_other = service.group not in (None, name) or service.asks_reevaluation
    held = any(groups.holding(address) for address in service.addresses)
    return name not in groups.all and not asks_other and not held and not service.explicit


class _Choice:
    """The addresses of one Service from one group, put together step by step."""

    def __init__(
        self,
        service: Service,
        group: ServiceGroup,
        ledger: Ledger,
        live: Live,
        shown: Tuple[Address, ...],
    ) -> None:
        self._service = service
        self._group = group
        self._ledger = ledger
        self._live = live
        asked = service.multi_pool
        self._multi = group.multi_pool if asked is None else asked
        self._chosen: List[Address] = []
        self._partial: List[AddressRange] = []
        self._stays = [a for a in shown if self._may_stay(a)]

    def outcome(self) -> Outcome:
        """What is to happen; RefusedError if the Service cannot be served."""
        if self._multi and self._group.balance_pools:
            raise self._refused(
                RefusalReason.MULTIPOOL_REFUSED,
                f"takes each address from one range (balancePools), and the annotation "
                f"{MULTI_POOL_ANNOTATION} asks for one of each: remove one of the two",
            )
        self._take_explicit()
        self._take_stays()
        if self._multi:
            self._take_each()
        else:
            self._take_one()
        self._check_families()
        assignment = self._assignment()
        if not _is_done(self._service, assignment):
            return assignment
        return Keep(tuple(a for a in assignment.addresses if not self._group.range_of(a)))

    def _refused(self, reason: RefusalReason, text: str) -> RefusedError:
        return RefusedError(reason, self._group.name, f"ServiceGroup {self._group.name} {text}")

    def _may_stay(self, address: Address) -> bool:
        """Whether the Service may go on with an address, though its range may be gone."""
        in_pool = self._group.range_of(address) is not None
        is_of_group = (
            self._service.allocated_from == self._group.name and not self._service.asks_reevaluation
        )
        return address.version in self._service.families and (in_pool or is_of_group)

    def _ranges(self, version: int) -> List[AddressRange]:
        return [r for r in self._group.ranges if r.first.version == version]

    def _has(self, version: int) -> bool:
        return any(a.version == version for a in self._chosen)

    def _take_explicit(self) -> None:
        """Those that the owner asks for; more than one of a family only from different ranges."""
        for address in self._service.explicit:
            self._check_explicit(address)
            self._chosen.append(address)

    def _check_explicit(self, address: Address) -> None:
        one = self._group.range_of(address)
        if address.version not in self._service.families:
            raise self._refused(
                RefusalReason.INVALID_ADDRESS,
                f"cannot give {address}: the Service has no {FAMILIES[address.version]} in "
                "spec.ipFamilies; add it, or ask for another address",
            )
        if one is None and address not in self._stays:
            raise self._refused(
                RefusalReason.UNKNOWN_POOL,
                f"has no range with {address}: ask for an address of its pool, or add a range",
            )
        conflict = self._ledger.conflict(address, self._service)
        if conflict is not None:
            raise self._conflicting(address, conflict)
        if self._has(address.version) and not self._multi:
            raise self._refused(
                RefusalReason.MULTIPOOL_REFUSED,
                f"gives one {FAMILIES[address.version]} address: ask for one only, or set the "
                f"annotation {MULTI_POOL_ANNOTATION} to true for one of each range",
            )
        if one is not None and any(a in one for a in self._chosen):
            raise self._refused(
                RefusalReason.MULTIPOOL_POOL_MISMATCH,
                f"gives one address of each range, and {address} is the second of {one}: ask for "
                "one of them only",
            )

    def _conflicting(self, address: Address, conflict: Conflict) -> RefusedError:
        if conflict.ports:
            ports = ", ".join(f"{number}/{protocol}" for protocol, number in conflict.ports)
            return self._refused(
                RefusalReason.PORT_CONFLICT,
                f"cannot share {address}: Service {conflict.holder} listens on {ports}, too; "
                "change the port, or ask for another address",
            )
        return self._refused(
            RefusalReason.SHARING_KEY_CONFLICT,
            f"cannot give {address}: Service {conflict.holder} has it; ask for another address, or "
            f"set the same annotation {SHARING_ANNOTATION} on both",
        )

    def _take_stays(self) -> None:
        """What the Service has; one of a family if it has said that it wants no more."""
        only_one = not self._multi and (
            self._service.multi_pool is False or bool(self._service.explicit)
        )
        for address in self._stays:
            one = self._group.range_of(address)
            is_second = one is not None and any(a in one for a in self._chosen)
            if address in self._chosen or is_second:
                continue
            if not (only_one and self._has(address.version)):
                self._chosen.append(address)

    def _take_each(self) -> None:
        """One of each range that has nodes and of which there is none yet."""
        for version in self._service.families:
            for one in self._ranges(version):
                is_served = self._live.serves(one, self._group.pool_type)
                if not is_served or any(a in one for a in self._chosen):
                    continue
                free = self._free([one])
                if free is None:
                    self._partial.append(one)
                else:
                    self._chosen.append(free)

    def _take_one(self) -> None:
        """One of each family of which there is none yet."""
        for version in self._service.families:
            free = None if self._has(version) else self._free(self._ranges(version))
            if free is not None:
                self._chosen.append(free)

    def _free(self, ranges: List[AddressRange]) -> Optional[Address]:
        """An address to share, else the lowest free one of the first range, or of the emptiest."""
        shared = (self._ledger.shareable(one, self._service) for one in ranges)
        if self._group.balance_pools:
            ranges = sorted(ranges, key=self._ledger.in_use)
        free = (self._ledger.lowest_free(one) for one in ranges)
        found = (address for source in (shared, free) for address in source)
        return next((address for address in found if address is not None), None)

    def _check_families(self) -> None:
        """Refuse if the Service cannot do without the families that the group has nothing for."""
        missing = [v for v in self._service.families if not self._has(v)]
        if not missing or (self._chosen and not self._service.requires_dual_stack):
            return
        text = " and ".join(FAMILIES[version] for version in missing)
        if not all(self._ranges(version) for version in missing):
            mend = f"add a pool for {text}"
        elif self._multi and not self._partial:
            raise self._refused(
                RefusalReason.MULTIPOOL_REFUSED,
                f"has no {text} range with a node in its subnet: the Service gets its addresses as "
                "soon as there is one",
            )
        else:
            mend = "enlarge the pool or delete a Service"
        raise self._refused(RefusalReason.EXHAUSTED, f"has no free {text} address: {mend}")

    def _assignment(self) -> Assignment:
        order: Dict[int, int] = {v: i for i, v in enumerate(self._service.families)}
        position = {one: i for i, one in enumerate(self._group.ranges)}
        ends = len(position)

        def place(address: Address) -> Tuple[int, int]:
            one = self._group.range_of(address)
            return order[address.version], ends if one is None else position[one]

        is_local = self._group.pool_type is PoolType.LOCAL
        return Assignment(
            self._group.name,
            tuple(sorted(self._chosen, key=place)),
            self._group.pool_type,
            self._group.skip_dad,
            is_multi=self._multi,
            partial=tuple(self._partial),
            is_balanced=self._group.balance_pools,
            sets_cluster=is_local
            and self._service.is_external_local
            and not self._service.allows_local,
        )


def _is_done(service: Service, assignment: Assignment) -> bool:
    """Whether the Service already says all that the assignment would write."""
    return (
        service.allocated_by_us
        and not service.asks_reevaluation
        and not assignment.sets_cluster
        and service.addresses == assignment.addresses
        and service.allocated_from == assignment.group
        and service.pool_type == assignment.pool_type
        and service.skip_dad == assignment.skip_dad
    )

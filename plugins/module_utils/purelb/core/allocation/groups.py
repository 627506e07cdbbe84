# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which ServiceGroups are usable, and from which of them a Service gets its addresses.

A group whose ranges overlap those of an older one is not used; the older one is unaffected. The
addresses that a Service has take precedence over the rules for a new Service, so a new group or
namespace never moves a running Service; its own annotations do.

A fenced namespace is one that an enforcing group serves. Its Services get addresses of groups that
serve it and of no others, and no group that serves it gives any to a Service of a namespace that it
does not serve. Which group gave a Service its addresses is what the ledger says, never what an
annotation says: a user who may write a Service may write its annotations.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, FrozenSet, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from ..model import Address, AddressRange, Service, ServiceGroup
from ..names import DEFAULT_GROUP, SERVICE_GROUP_ANNOTATION
from .allocations import HeldAddresses
from .refusals import AllocationRefusedError, RefusalReason


@dataclass(frozen=True)
class Overlap:
    """Two overlapping ranges; group `later` is not used. A group may overlap itself."""

    later: str
    later_range: AddressRange
    earlier: str
    earlier_range: AddressRange


@dataclass(frozen=True)
class GroupChoice:
    """The group for a Service.

    `ambiguous`: it is the group `default`, because these serve the namespace, and not exactly one
    of them is its default.
    """

    group: ServiceGroup
    ambiguous: Tuple[str, ...] = ()


class Groups:
    """All ServiceGroups, the usable ones, and the namespaces that they serve."""

    def __init__(self, groups: Iterable[ServiceGroup] = ()) -> None:
        self.all: Mapping[str, ServiceGroup] = {group.name: group for group in groups}
        self.overlaps: Tuple[Overlap, ...] = tuple(
            # An external IPAM checks its own ranges.
            _overlaps([group for group in self.all.values() if group.source is None])
        )
        bad = {overlap.later for overlap in self.overlaps}
        self.usable: Mapping[str, ServiceGroup] = {
            name: group for name, group in self.all.items() if name not in bad
        }
        self._serving: Dict[str, List[ServiceGroup]] = {}
        for group in sorted(self.usable.values(), key=lambda g: g.name):
            for namespace in group.namespaces:
                self._serving.setdefault(namespace, []).append(group)
        # A group that is not used for now keeps its fence.
        self._fenced: FrozenSet[str] = frozenset().union(
            *(group.namespaces for group in self.all.values() if group.enforces)
        )

    def holding(self, address: Address) -> Optional[ServiceGroup]:
        """The usable group with a range that holds the address."""
        return next((g for g in self.usable.values() if g.range_of(address)), None)

    def has_range_of(self, address: Address) -> bool:
        """Whether any group has the address, so that agents announce it; usable or not."""
        return any(group.range_of(address) for group in self.all.values())

    def of(self, service: Service, held: HeldAddresses) -> GroupChoice:
        """Return the group for a Service; raises AllocationRefusedError.

        Whether the group may give this Service more than it has is up to `denial`.
        """
        if service.group is not None:
            return GroupChoice(self._named(service.group))
        if held.addresses and not service.asks_reevaluation:
            current = self._current(service, held)
            if current is not None:
                return GroupChoice(current)
        if service.explicit:
            found = self.holding(service.explicit[0])
            if found is not None:
                return GroupChoice(found)
        return self._of_namespace(service.key.namespace)

    def _current(self, service: Service, held: HeldAddresses) -> Optional[ServiceGroup]:
        """Return the group of the Service's addresses, unless it requests others."""
        current = self.usable.get(held.origin or "")
        if current is None or not any(current.range_of(a) for a in held.addresses):
            found = filter(None, map(self.holding, held.addresses))
            current = next(found, current)
        missing = [a for a in service.explicit if a not in held.addresses]
        if current is not None and any(not current.range_of(a) for a in missing):
            return None
        return current

    def _named(self, name: str) -> ServiceGroup:
        group = self.usable.get(name)
        if group is not None:
            return group
        if name in self.all:
            raise AllocationRefusedError(
                RefusalReason.UNKNOWN_POOL,
                name,
                f"ServiceGroup {name} is not used, because its pool overlaps another one: see its "
                "events",
            )
        raise AllocationRefusedError(
            RefusalReason.UNKNOWN_POOL,
            name,
            f"ServiceGroup {name} does not exist (unknown pool): create it, or name another one in "
            f"the annotation {SERVICE_GROUP_ANNOTATION}",
        )

    def _of_namespace(self, namespace: str) -> GroupChoice:
        serving = self._serving.get(namespace, [])
        marked = [group for group in serving if group.is_namespace_default]
        if len(serving) == 1 or len(marked) == 1:
            return GroupChoice((marked or serving)[0])
        if serving and namespace in self._fenced:
            raise _ambiguous(namespace, serving)
        return GroupChoice(self._named(DEFAULT_GROUP), tuple(group.name for group in serving))

    def denial(self, group: ServiceGroup, namespace: str) -> Optional[AllocationRefusedError]:
        """Return why the group gives nothing new to Services of a namespace; None if it may."""
        if namespace in group.namespaces:
            return None
        if group.enforces or group.namespaces & self._fenced:
            return AllocationRefusedError(
                RefusalReason.NAMESPACE_DENIED,
                group.name,
                f"ServiceGroup {group.name} is reserved for other namespaces than {namespace} "
                "(namespace denied): name another group",
                f"add {namespace} to its spec.namespaces, which are "
                f"{', '.join(sorted(group.namespaces))}",
            )
        if namespace in self._fenced:
            allowed = sorted(g.name for g in self.all.values() if namespace in g.namespaces)
            return AllocationRefusedError(
                RefusalReason.NAMESPACE_DENIED,
                group.name,
                f"Services in namespace {namespace} get addresses from ServiceGroup "
                f"{' or '.join(allowed)} only (namespace denied): name it, or have {namespace} "
                f"added to spec.namespaces of {group.name}",
            )
        return None


def _ambiguous(namespace: str, serving: List[ServiceGroup]) -> AllocationRefusedError:
    found = ", ".join(group.name for group in serving)
    return AllocationRefusedError(
        RefusalReason.AMBIGUOUS_NAMESPACE_DEFAULT,
        serving[0].name,
        f"ServiceGroups {found} all serve namespace {namespace}, and none sets namespaceDefault, "
        "or more than one does: set spec.namespaceDefault on one, or name one in the annotation "
        f"{SERVICE_GROUP_ANNOTATION}",
    )


def _age(group: ServiceGroup) -> Tuple[str, str]:
    return group.created, group.name


def _overlaps(groups: Iterable[ServiceGroup]) -> Iterator[Overlap]:
    """Yield the overlaps of unused groups: each is compared with the older usable ones."""
    pairs = _overlapping_pairs(groups)
    used: Set[str] = set()
    for group in sorted(groups, key=_age):
        found = [
            pairs[group.name, earlier]
            for earlier in (group.name, *sorted(used))
            if (group.name, earlier) in pairs
        ]
        yield from found
        if not found:
            used.add(group.name)


def _overlapping_pairs(groups: Iterable[ServiceGroup]) -> Dict[Tuple[str, str], Overlap]:
    """Return overlaps by (younger group, older group), found in one pass over sorted ranges."""
    age = {group.name: _age(group) for group in groups}
    ranges = sorted(
        ((pool_range, group.name) for group in groups for pool_range in group.ranges),
        key=lambda r: (r[0].first.version, int(r[0].first), age[r[1]]),
    )
    pairs: Dict[Tuple[str, str], Overlap] = {}
    begun: List[Tuple[AddressRange, str]] = []
    for current in ranges:
        begun = [other for other in begun if current[0].first in other[0]]
        for other in begun:
            (earlier_range, earlier), (later_range, later) = sorted(
                (current, other), key=lambda r: age[r[1]]
            )
            pairs.setdefault((later, earlier), Overlap(later, later_range, earlier, earlier_range))
        begun.append(current)
    return pairs

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which ServiceGroups are usable, and from which of them a Service gets its addresses.

A group whose ranges overlap those of an older one is not used; the older one is unaffected. The
addresses that a Service has take precedence over the rules for a new Service, so a new group or
namespace never moves a running Service; its own annotations do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, Iterator, List, Mapping, Optional, Set, Tuple

from ..model import Address, AddressRange, Service, ServiceGroup
from ..names import DEFAULT_GROUP, SERVICE_GROUP_ANNOTATION
from .refusals import AllocationRefusedError, RefusalReason


@dataclass(frozen=True)
class Overlap:
    """Two overlapping ranges; group `later` is not used. A group may overlap itself."""

    later: str
    later_range: AddressRange
    earlier: str
    earlier_range: AddressRange


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
        self._enforced: Set[str] = set()
        for group in sorted(self.usable.values(), key=lambda g: g.name):
            for namespace in group.namespaces:
                self._serving.setdefault(namespace, []).append(group)
            if group.enforces:
                self._enforced.update(group.namespaces)

    def holding(self, address: Address) -> Optional[ServiceGroup]:
        """The usable group with a range that holds the address."""
        return next((g for g in self.usable.values() if g.range_of(address)), None)

    def of(self, service: Service, shown: Tuple[Address, ...]) -> ServiceGroup:
        """Return the group for a Service that keeps `shown`; raises AllocationRefusedError."""
        if service.group is not None:
            return self._named(service.group, service)
        if shown and not service.asks_reevaluation:
            current = self._current(service, shown)
            if current is not None:
                return current
        if service.explicit:
            found = self.holding(service.explicit[0])
            if found is not None:
                return self._permitted(found, service)
        return self._of_namespace(service)

    def _current(self, service: Service, shown: Tuple[Address, ...]) -> Optional[ServiceGroup]:
        """Return the group of the Service's addresses, unless it requests others."""
        current = self.usable.get(service.allocated_from or "")
        if current is None or not any(current.range_of(a) for a in shown):
            current = self.holding(shown[0]) or current
        missing = [a for a in service.explicit if a not in shown]
        if current is not None and any(not current.range_of(a) for a in missing):
            return None
        return current

    def _named(self, name: str, service: Service) -> ServiceGroup:
        group = self.usable.get(name)
        if group is not None:
            return self._permitted(group, service)
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
            f"ServiceGroup {name} does not exist: create it, or name another one in the "
            f"annotation {SERVICE_GROUP_ANNOTATION}",
        )

    def _of_namespace(self, service: Service) -> ServiceGroup:
        namespace = service.key.namespace
        serving = self._serving.get(namespace, [])
        if len(serving) > 1:
            marked = [group for group in serving if group.is_namespace_default]
            if len(marked) != 1:
                raise _ambiguous(namespace, marked or serving)
            serving = marked
        return serving[0] if serving else self._named(DEFAULT_GROUP, service)

    def _permitted(self, group: ServiceGroup, service: Service) -> ServiceGroup:
        """Return the group if the namespace may use it; a Service may always keep its own."""
        namespace = service.key.namespace
        if namespace in group.namespaces or service.allocated_from == group.name:
            return group
        if group.enforces:
            raise AllocationRefusedError(
                RefusalReason.NAMESPACE_DENIED,
                group.name,
                f"ServiceGroup {group.name} serves only the namespaces "
                f"{', '.join(sorted(group.namespaces))}: add {namespace} to its spec.namespaces, "
                "or name another group",
            )
        if namespace in self._enforced:
            allowed = [serving.name for serving in self._serving[namespace]]
            raise AllocationRefusedError(
                RefusalReason.NAMESPACE_DENIED,
                group.name,
                f"Services in namespace {namespace} get addresses from ServiceGroup "
                f"{' or '.join(allowed)} only: name it, or add {namespace} to spec.namespaces of "
                f"{group.name}",
            )
        return group


def _ambiguous(namespace: str, groups: List[ServiceGroup]) -> AllocationRefusedError:
    found = ", ".join(group.name for group in groups)
    return AllocationRefusedError(
        RefusalReason.AMBIGUOUS_NAMESPACE_DEFAULT,
        groups[0].name,
        f"ServiceGroups {found} all serve namespace {namespace}: set spec.namespaceDefault on one "
        f"of them, or name one in the annotation {SERVICE_GROUP_ANNOTATION}",
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

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The audit as a page shows it: all rows, shares and words, so that a template only prints.

Takes what purelb_lease_info returns, and the ServiceGroup objects. What is wrong is what the
findings say: nothing is judged a second time here. Knows no markup; who prints it must escape it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import timedelta
from enum import Enum
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..addresses import parse_address, parse_subnets, subnet_order
from ..api.custom_resources import service_group_of
from ..errors import ObjectError
from ..model import Address, AddressRange, PoolType, ServiceGroup
from ..names import FAMILIES
from .findings import lease_title, vip_title

Json = Mapping[str, Any]

# Names in a cell before the rest becomes a number: a hundred nodes are no use in one.
_FEW = 3
# A pool is nearly full from this percentage on, as the alert about it has it.
NEARLY_FULL = 90
# Above this a count is a power of two or in powers of ten: nobody reads twenty digits.
_READABLE = 10**7


class Mark(str, Enum):
    """How a row is: it has no finding, a warning, or an error."""

    OK = "ok"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True)
class NodeRow:
    """A node by its Lease. `share` is how much of the Lease is used up, of 100."""

    name: str
    mark: Mark
    state: str
    age: str
    share: int
    subnets: Tuple[str, ...]
    wins: int
    holds: int
    outage: str


@dataclass(frozen=True)
class SubnetColumn:
    """A subnet, how many nodes may have its addresses, and how many of these there are."""

    subnet: str
    candidates: int
    addresses: int


@dataclass(frozen=True)
class MatrixRow:
    """For each subnet: `candidate`, `absent` (the subnet is the node's, but it may not), or ``."""

    node: str
    mark: Mark
    cells: Tuple[str, ...]


@dataclass(frozen=True)
class VipRow:
    """An address. `after` are those who would have it next."""

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
    """A range of a ServiceGroup; `problem` says why a group shows none."""

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
    """A leader lock, by which one of several allocators leads."""

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
    """All of it."""

    mark: Mark
    verdict: str
    errors: int
    warnings: int
    live: int
    nodes: Tuple[NodeRow, ...]
    subnets: Tuple[SubnetColumn, ...]
    matrix: Tuple[MatrixRow, ...]
    vips: Tuple[VipRow, ...]
    pools: Tuple[PoolRow, ...]
    locks: Tuple[LockRow, ...]


def page_of(seen: Json, objects: Iterable[Json]) -> Page:
    """Lay out the result of purelb_lease_info and these ServiceGroup objects."""
    findings, vips = seen["findings"], seen["vips"]
    groups = [_group(body) for body in objects]
    addresses = [parse_address(vip["address"]) for vip in vips]
    marks = _marks(findings)
    severities = Counter(one["severity"] for one in findings)
    subnets = _subnets(seen["leases"], addresses)
    return Page(
        mark=_worst(severities),
        verdict=_verdict(severities),
        errors=severities[Mark.ERROR.value],
        warnings=severities[Mark.WARNING.value],
        live=sum(lease["live"] for lease in seen["leases"]),
        nodes=_nodes(seen["leases"], vips, marks),
        subnets=subnets,
        matrix=_matrix(seen["leases"], subnets, marks),
        vips=tuple(_vip(vip, groups, findings) for vip in vips),
        pools=tuple(row for one in groups for row in _pools(one, addresses)),
        # An audit of before there were locks has none.
        locks=tuple(_lock(lock, marks) for lock in seen.get("leader_locks") or ()),
    )


def _worst(severities: Iterable[str]) -> Mark:
    found = set(severities)
    return next((m for m in (Mark.ERROR, Mark.WARNING) if m.value in found), Mark.OK)


def _verdict(severities: Mapping[str, int]) -> str:
    counts = [
        f"{severities[mark.value]} {mark.value}{'s' if severities[mark.value] > 1 else ''}"
        for mark in (Mark.ERROR, Mark.WARNING)
        if severities[mark.value]
    ]
    return ", ".join(counts) or "nothing is wrong"


def _marks(findings: Iterable[Json]) -> Mapping[str, Mark]:
    """How each object is that a finding is about."""
    severities: Dict[str, List[str]] = defaultdict(list)
    for one in findings:
        severities[one["object"]].append(one["severity"])
    return defaultdict(lambda: Mark.OK, {about: _worst(s) for about, s in severities.items()})


def _few(texts: Sequence[str], count: Optional[int] = None) -> Tuple[str, ...]:
    """The first few; there are more than these texts where `count` says so."""
    rest = (len(texts) if count is None else count) - _FEW
    return (*texts[:_FEW], f"and {rest} more") if rest > 0 else tuple(texts)


def _nodes(
    leases: Iterable[Json], vips: Sequence[Json], marks: Mapping[str, Mark]
) -> Tuple[NodeRow, ...]:
    wins = Counter(vip["winner"] for vip in vips)
    holds = Counter(node for vip in vips for node in {one["node"] for one in vip["announcing"]})
    return tuple(
        NodeRow(
            name=lease["node"],
            mark=marks[lease_title(lease["node"])],
            state=_state(lease),
            age=_age(lease),
            share=_share(lease["age"] or 0, lease["duration"]),
            subnets=tuple(lease["subnets"]),
            wins=wins[lease["node"]],
            holds=holds[lease["node"]],
            outage=_outage(lease["outage"]),
        )
        for lease in leases
    )


_STATES = {
    "live": "live",
    "expired": "expired",
    "neverRenewed": "never renewed",
    "fromTheFuture": "live, from the future",
}


def _state(lease: Json) -> str:
    return _STATES[lease["reason"]] + (", draining" if lease["draining"] else "")


def _age(lease: Json) -> str:
    age = "never" if lease["age"] is None else f"{lease['age']:.1f} s"
    return f"{age} of {lease['duration']:.0f} s"


def _share(part: float, whole: float) -> int:
    """Of 100, never more and never less than nothing."""
    return max(0, min(100, int(part * 100 / whole))) if whole else 100


def _outage(outage: Optional[Json]) -> str:
    return f"{outage['seconds']:.0f} s until {outage['end'][:19]}Z" if outage else ""


def _subnets(leases: Iterable[Json], addresses: Iterable[Address]) -> Tuple[SubnetColumn, ...]:
    candidates: Counter[str] = Counter()
    for lease in leases:
        candidates.update({subnet: int(_is_candidate(lease)) for subnet in lease["subnets"]})
    known = tuple(addresses)
    networks, _malformed = parse_subnets(candidates)
    return tuple(
        SubnetColumn(str(net), candidates[str(net)], sum(address in net for address in known))
        for net in sorted(networks, key=subnet_order)
    )


def _is_candidate(lease: Json) -> bool:
    return lease["live"] and not lease["draining"]


def _matrix(
    leases: Iterable[Json], subnets: Sequence[SubnetColumn], marks: Mapping[str, Mark]
) -> Tuple[MatrixRow, ...]:
    def cell(lease: Json, column: SubnetColumn) -> str:
        if column.subnet not in lease["subnets"]:
            return ""
        return "candidate" if _is_candidate(lease) else "absent"

    return tuple(
        MatrixRow(
            lease["node"],
            marks[lease_title(lease["node"])],
            tuple(cell(lease, column) for column in subnets),
        )
        for lease in leases
    )


@dataclass(frozen=True)
class _Group:
    """A ServiceGroup object as far as it can be read."""

    title: str
    pool_type: str
    record: Optional[ServiceGroup] = None
    problem: str = ""

    @property
    def ranges(self) -> Tuple[AddressRange, ...]:
        return self.record.ranges if self.record else ()


def _group(body: Json) -> _Group:
    title = f"{body['metadata']['namespace']}/{body['metadata']['name']}"
    try:
        record = service_group_of(body)
    except ObjectError as problem:
        return _Group(title, ", ".join(sorted(body.get("spec") or ())), problem=str(problem))
    return _Group(title, record.pool_type.value, record)


def _vip(vip: Json, groups: Iterable[_Group], findings: Iterable[Json]) -> VipRow:
    address = parse_address(vip["address"])
    titles = (vip["address"], vip_title(vip["address"], vip["services"]))
    about = [one for one in findings if one["object"] in titles]
    is_local = vip["pool_type"] == PoolType.LOCAL.value
    pool = next((g.title for g in groups if any(address in r for r in g.ranges)), "")
    return VipRow(
        address=vip["address"],
        family=vip["family"],
        services=tuple(vip["services"]),
        pool=pool or "in no pool",
        pool_type=vip["pool_type"],
        winner=_winner(vip, is_local=is_local),
        holders=_few([f"{one['node']} ({one['interface']})" for one in vip["announcing"]]),
        after=_few(vip["candidates"][1:], vip["candidate_count"] - 1) if is_local else (),
        mark=_worst(one["severity"] for one in about),
        state=", ".join(dict.fromkeys(one["code"] for one in about)) or "as it should be",
    )


def _winner(vip: Json, *, is_local: bool) -> str:
    if is_local:
        return vip["winner"] or "nobody"
    count = vip["candidate_count"]
    return f"all of {count} node{'' if count == 1 else 's'}" if count else "nobody"


def _pools(group: _Group, addresses: Sequence[Address]) -> Iterable[PoolRow]:
    if not group.ranges:
        problem = group.problem or "it has no ranges of its own"
        mark = Mark.WARNING if group.problem else Mark.OK
        yield PoolRow(group.title, group.pool_type, problem=problem, mark=mark)
    for one in group.ranges:
        used = sum(address in one for address in addresses)
        share = _share(used, one.size)
        yield PoolRow(
            group=group.title,
            pool_type=group.pool_type,
            family=FAMILIES[one.first.version],
            range=str(one),
            subnet=str(one.subnet),
            used=used,
            size=_count(one.size),
            share=share,
            mark=Mark.WARNING if share >= NEARLY_FULL else Mark.OK,
            state="full" if used == one.size else "nearly full" if share >= NEARLY_FULL else "",
        )


def _lock(lock: Json, marks: Mapping[str, Mark]) -> LockRow:
    name = f"{lock['kind']} {lock['namespace']}/{lock['name']}"
    held_for = lock["held_for"]
    return LockRow(
        name=name,
        holder=lock["holder"] or "nobody",
        mark=marks[name],
        state=lock["state"],
        age=_age(lock),
        share=_share(lock["age"] or 0, lock["duration"]),
        held_for="" if held_for is None else str(timedelta(seconds=int(held_for))),
        transitions=lock["transitions"],
    )


def _count(number: int) -> str:
    if number < _READABLE:
        return str(number)
    bits = number.bit_length() - 1
    return f"2^{bits}" if number == 1 << bits else f"{number:.2g}"

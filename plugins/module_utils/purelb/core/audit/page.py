# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The content of the audit page: all rows, percentages and texts, so the template only prints.

Its input is the result of purelb_lease_info and the ServiceGroup objects. All marks come from the
findings; nothing is evaluated again here. It contains no markup, and the template must escape it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..addresses import parse_address, parse_subnets, subnet_order
from ..api.custom_resources import service_group_of
from ..errors import ObjectError
from ..model import Address, AddressRange, PoolType, ServiceGroup
from ..names import FAMILIES
from .findings import group_title, lease_title, node_title, vip_title
from .page_rows import (
    LockRow,
    Mark,
    MatrixRow,
    NodeRow,
    Page,
    PoolRow,
    SubnetColumn,
    VipRow,
)
from .report import NodeState

Json = Mapping[str, Any]

# How many names a cell lists; the others are counted.
_FEW = 3
# A pool is nearly full from this percentage on, as in the alert.
NEARLY_FULL = 90
# Larger counts are printed as a power of two or in scientific notation.
_READABLE = 10**7


def page_of(seen: Json, objects: Iterable[Json]) -> Page:
    """Return the page for a result of purelb_lease_info and these ServiceGroup objects."""
    findings, vips, nodes = seen["findings"], seen["vips"], seen["nodes"]
    groups = [_group(body) for body in objects]
    addresses = [parse_address(vip["address"]) for vip in vips]
    marks = _marks(findings)
    severities = Counter(finding["severity"] for finding in findings)
    subnets = _subnets(seen["leases"], addresses)
    return Page(
        mark=_worst(severities),
        verdict=_verdict(severities),
        errors=severities[Mark.ERROR.value],
        warnings=severities[Mark.WARNING.value],
        live=sum(node["state"] == NodeState.LIVE.value for node in nodes),
        expected=sum(node["state"] != NodeState.EXEMPT.value for node in nodes),
        nodes=_nodes(nodes, seen["leases"], vips, marks),
        subnets=subnets,
        matrix=_matrix(seen["leases"], subnets, marks),
        vips=tuple(_vip(vip, groups, findings) for vip in vips),
        pools=tuple(row for group in groups for row in _pools(group, groups, addresses, marks)),
        # Results of older versions have no locks.
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
    """Return the mark of each object with findings; others are OK."""
    severities: Dict[str, List[str]] = defaultdict(list)
    for finding in findings:
        severities[finding["object"]].append(finding["severity"])
    return defaultdict(lambda: Mark.OK, {about: _worst(s) for about, s in severities.items()})


def _few(texts: Sequence[str], count: Optional[int] = None) -> Tuple[str, ...]:
    """Return the first few texts and how many more exist; `count` is the total number."""
    rest = (len(texts) if count is None else count) - _FEW
    return (*texts[:_FEW], f"and {rest} more") if rest > 0 else tuple(texts)


_WITHOUT_LEASE = {
    NodeState.DOWN.value: "no Lease",
    NodeState.EXCLUDED.value: "no agent",
    NodeState.EXEMPT.value: "exempt",
}
_NO_NODE = {"state": "", "reason": "there is no such Node"}


def _nodes(
    nodes: Iterable[Json],
    leases: Iterable[Json],
    vips: Sequence[Json],
    marks: Mapping[str, Mark],
) -> Tuple[NodeRow, ...]:
    """Return a row for each Node, and for each Lease of a node that is none any more."""
    wins = Counter(vip["winner"] for vip in vips)
    holds = Counter(node for vip in vips for node in {entry["node"] for entry in vip["announcing"]})
    node_of = {node["node"]: node for node in nodes}
    lease_of = {lease["node"]: lease for lease in leases}

    def row(name: str) -> NodeRow:
        node = node_of.get(name, _NO_NODE)
        mark = _worst(marks[title(name)].value for title in (lease_title, node_title))
        bare = NodeRow(
            name=name,
            mark=mark if node["state"] != NodeState.EXCLUDED.value else Mark.WARNING,
            state=_WITHOUT_LEASE.get(node["state"], ""),
            wins=wins[name],
            holds=holds[name],
            reason=node["reason"],
        )
        lease = lease_of.get(name)
        return bare if lease is None else _with_lease(bare, lease)

    return tuple(map(row, sorted({*node_of, *lease_of})))


def _with_lease(row: NodeRow, lease: Json) -> NodeRow:
    return replace(
        row,
        state=_state(lease),
        age=_age(lease),
        share=_share(lease["age"] or 0, lease["duration"]),
        subnets=tuple(lease["subnets"]),
        outage=_outage(lease["outage"]),
    )


_STATES = {
    "live": "live",
    "expired": "expired",
    "neverRenewed": "never renewed",
    "fromTheFuture": "live, from the future",
}
_STANDINGS = {
    "first": "",
    "excluded": ", excluded by its label",
    "evicted": ", draining",
    "ill": ", kube-proxy down",
    "drained": ", draining",
}


def _state(lease: Json) -> str:
    state = _STATES[lease["reason"]]
    return state + (_STANDINGS[lease["standing"]] or (", draining" if lease["draining"] else ""))


def _age(lease: Json) -> str:
    age = "never" if lease["age"] is None else f"{lease['age']:.1f} s"
    return f"{age} of {lease['duration']:.0f} s"


def _share(part: float, whole: float) -> int:
    """Return the percentage, limited to 0..100."""
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
    return bool(lease["live"]) and lease["standing"] == "first"


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
    """A ServiceGroup object, as far as it is readable."""

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
    except ObjectError as error:
        return _Group(title, ", ".join(sorted(body.get("spec") or ())), problem=str(error))
    return _Group(title, record.pool_type.value, record)


def _vip(vip: Json, groups: Iterable[_Group], findings: Iterable[Json]) -> VipRow:
    address = parse_address(vip["address"])
    titles = (vip["address"], vip_title(vip["address"], vip["services"]))
    about = [finding for finding in findings if finding["object"] in titles]
    is_local = vip["pool_type"] == PoolType.LOCAL.value
    pool = next((g.title for g in groups if any(address in r for r in g.ranges)), "")
    return VipRow(
        address=vip["address"],
        family=vip["family"],
        services=tuple(vip["services"]),
        pool=pool or "in no pool",
        pool_type=vip["pool_type"],
        winner=_winner(vip, is_local=is_local),
        holders=_few([f"{entry['node']} ({entry['interface']})" for entry in vip["announcing"]]),
        after=_few(vip["candidates"][1:], vip["candidate_count"] - 1) if is_local else (),
        mark=_worst(finding["severity"] for finding in about),
        state=", ".join(dict.fromkeys(finding["code"] for finding in about)) or "as it should be",
    )


def _winner(vip: Json, *, is_local: bool) -> str:
    if is_local:
        return vip["winner"] or "no node"
    count = vip["candidate_count"]
    return f"all of {count} node{'' if count == 1 else 's'}" if count else "no node"


def _is_unready(group: _Group, marks: Mapping[str, Mark]) -> bool:
    return marks[group_title(group.title.rpartition("/")[2])] is not Mark.OK


def _pools(
    group: _Group,
    groups: Sequence[_Group],
    addresses: Sequence[Address],
    marks: Mapping[str, Mark],
) -> Iterable[PoolRow]:
    is_unready = _is_unready(group, marks)
    if is_unready:
        # What it shares with a group that is used is that one's.
        used_ones = [r for other in groups if not _is_unready(other, marks) for r in other.ranges]
        addresses = [a for a in addresses if not any(a in r for r in used_ones)]
    if not group.ranges:
        problem = group.problem or "it has no ranges of its own"
        mark = Mark.WARNING if group.problem else Mark.OK
        yield PoolRow(group.title, group.pool_type, problem=problem, mark=mark)
    for pool_range in group.ranges:
        used = sum(address in pool_range for address in addresses)
        share = _share(used, pool_range.size)
        yield PoolRow(
            group=group.title,
            pool_type=group.pool_type,
            family=FAMILIES[pool_range.first.version],
            range=str(pool_range),
            subnet=str(pool_range.subnet),
            used=used,
            size=_count(pool_range.size),
            share=share,
            mark=Mark.WARNING if is_unready or share >= NEARLY_FULL else Mark.OK,
            state="not Ready"
            if is_unready
            else "full"
            if used == pool_range.size
            else "nearly full"
            if share >= NEARLY_FULL
            else "",
        )


def _lock(lock: Json, marks: Mapping[str, Mark]) -> LockRow:
    name = f"{lock['kind']} {lock['namespace']}/{lock['name']}"
    held_for = lock["held_for"]
    return LockRow(
        name=name,
        holder=lock["holder"] or "no holder",
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

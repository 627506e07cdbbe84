# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Validation of a ServiceGroup or an LBNodeAgent before it is written.

Invalid objects raise an ObjectError that names the field and the remedy. Valid but probably
unintended settings produce a warning. It uses the same parsers as the programs; rules that only the
API server enforces are left to it.
"""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, FrozenSet, Iterable, Iterator, Mapping, Sequence

from ..allocation.groups import Groups
from ..errors import ObjectError
from ..model import Address, AddressRange, NetBoxSource, Network, PoolType, ServiceGroup
from ..names import DEFAULT_GROUP
from ..node.configuration import NodeConfig, also_matches, deselected
from ..settings import AddressConfig
from ..texts import few
from .custom_resources import node_config_of, service_group_of

Json = Mapping[str, Any]

_EXAMPLES = {
    "v4": "pool 192.168.1.240-192.168.1.250 in subnet 192.168.1.0/24",
    "v6": "pool fd00:1::100-fd00:1::1ff in subnet fd00:1::/64",
}
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# The kernel's limit is 15 bytes.
_INTERFACE = re.compile(r"[^/\s]{1,15}")
_TEXTS = (
    ("netbox", "url", re.compile(r"https?://\S+"), "a URL such as https://netbox.example.com"),
    ("external", "socket", re.compile(r"/.*"), "an absolute path in the allocator's Pod"),
)
_SHORTEST_LIFETIME = 60


def _where(body: Json) -> str:
    meta = body["metadata"]
    return f"{body['kind']} {meta['namespace']}/{meta['name']}"


def check_group(body: Json) -> ServiceGroup:
    """Validate a ServiceGroup and return its record."""
    where, spec = _where(body), body["spec"]
    _check_namespaces(where, spec)
    for source, field, pattern, form in _TEXTS:
        text = spec.get(source, {}).get(field)
        if text is not None and not pattern.fullmatch(text):
            raise ObjectError(where, f"spec.{source}.{field}", f"{text!r} must be {form}")
    try:
        group = service_group_of(body)
    except ObjectError as error:
        raise _with_example(error, spec) from error
    if isinstance(group.source, NetBoxSource) and group.source.token_problem:
        raise ObjectError(where, "spec.netbox.url", group.source.token_problem)
    if group.source is None:
        _check_ranges(where, f"spec.{group.pool_type.value}", group)
    return group


def _with_example(error: ObjectError, spec: Json) -> ObjectError:
    """Return an error about a range with the full path of its field and an example."""
    example = _EXAMPLES.get(error.field[:2])
    if example is None:
        return error
    source = next(kind.value for kind in PoolType if kind.value in spec)
    return ObjectError(
        error.where, f"spec.{source}.{error.field}", f"{error.problem}; for example {example}"
    )


def _check_namespaces(where: str, spec: Json) -> None:
    namespaces = spec.get("namespaces") or ()
    for switch in ("enforceNamespaces", "namespaceDefault"):
        if spec.get(switch) and not namespaces:
            raise ObjectError(where, f"spec.{switch}", "needs namespaces: list them")
    for i, name in enumerate(namespaces):
        if not _NAMESPACE.fullmatch(name):
            raise ObjectError(
                where,
                f"spec.namespaces[{i}]",
                f"{name!r} is not a valid namespace name: write a-z, 0-9, -",
            )
        if name in namespaces[:i]:
            raise ObjectError(where, f"spec.namespaces[{i}]", f"{name!r} is listed twice: keep one")


def _check_ranges(where: str, path: str, group: ServiceGroup) -> None:
    if group.multi_pool and group.balance_pools:
        raise ObjectError(
            where,
            f"{path}.multiPool",
            "takes an address of every range, balancePools chooses one range: keep one of them",
        )
    if not group.ranges:
        raise ObjectError(where, path, "has no range: give v4pool or v6pool")
    for overlap in Groups([group]).overlaps:
        both = " and ".join(sorted((str(overlap.earlier_range), str(overlap.later_range))))
        raise ObjectError(where, path, f"its ranges {both} overlap: shorten one of them")


@dataclass(frozen=True)
class Surroundings:
    """What is known of the network of the nodes.

    `subnets`: those that Leases list. `taken`: addresses of Nodes and of other hosts, and whose
    they are.
    """

    subnets: FrozenSet[Network] = frozenset()
    taken: Mapping[Address, str] = dataclasses.field(default_factory=dict)


def group_warnings(
    group: ServiceGroup, others: Iterable[ServiceGroup], around: Surroundings
) -> Iterator[str]:
    """Yield a warning for each probably unintended setting of a group, given all others."""
    for pool_range in group.ranges:
        yield from _misplaced(group, pool_range, around)
    known = (group, *others)
    for overlap in Groups(known).overlaps:
        if group.name in (overlap.earlier, overlap.later):
            yield (
                f"{overlap.earlier_range} of ServiceGroup {overlap.earlier} and "
                f"{overlap.later_range} of ServiceGroup {overlap.later} overlap, so the younger "
                f"group is not used: move or shorten one of these ranges"
            )
    for namespace in sorted(group.namespaces):
        serving = [other for other in known if namespace in other.namespaces]
        if len(serving) > 1 and sum(other.is_namespace_default for other in serving) != 1:
            listed = ", ".join(sorted(other.name for other in serving))
            yield (
                f"ServiceGroups {listed} all serve namespace {namespace}: make one of them its "
                f"default. Services there that name none get addresses of ServiceGroup "
                f"{DEFAULT_GROUP}, or, with enforceNamespaces, no address"
            )
    if group.pool_type is PoolType.LOCAL:
        for pool_range in group.ranges:
            yield from _reserved(pool_range)


def _misplaced(
    group: ServiceGroup, pool_range: AddressRange, around: Surroundings
) -> Iterator[str]:
    """Yield that no node could announce a range, or that others have addresses of it."""
    is_local = group.pool_type is PoolType.LOCAL
    ends = (pool_range.first, pool_range.last)
    is_there = any(end in subnet for end in ends for subnet in around.subnets)
    if is_local and around.subnets and not is_there:
        known = few(sorted(map(str, around.subnets)))
        yield (
            f"no node is in {pool_range.subnet}, so none would announce addresses of "
            f"{pool_range}: the nodes are in {known}; for addresses that routers send to the "
            "nodes, use remote"
        )
    taken = sorted((a for a in around.taken if a in pool_range), key=int)
    if taken:
        named = few([f"{address} ({around.taken[address]})" for address in taken])
        yield f"the range {pool_range} contains addresses that others have: {named}: leave them out"


def _reserved(pool_range: AddressRange) -> Iterator[str]:
    """Yield a warning for each address of the range that no host should use."""
    subnet = pool_range.subnet
    # Point-to-point links use both of their addresses.
    if subnet.num_addresses > 2:  # noqa: PLR2004
        if subnet.network_address in pool_range:
            is_ipv4 = subnet.version == 4  # noqa: PLR2004
            use = "the subnet's own address" if is_ipv4 else "the anycast address of its routers"
            yield (
                f"the range {pool_range} contains {subnet.network_address}, which is {use}: begin "
                f"after it"
            )
        if subnet.version == 4 and subnet.broadcast_address in pool_range:  # noqa: PLR2004
            yield (
                f"the range {pool_range} contains {subnet.broadcast_address}, the broadcast "
                f"address of the subnet: end before it"
            )


def check_agent(body: Json) -> NodeConfig:
    """Validate an LBNodeAgent and return its record."""
    where, spec = _where(body), body["spec"]
    expressions = (spec.get("nodeSelector") or {}).get("matchExpressions") or ()
    for i, entry in enumerate(expressions):
        if (entry["operator"] in ("In", "NotIn")) != bool(entry.get("values")):
            raise ObjectError(
                where,
                f"spec.nodeSelector.matchExpressions[{i}].values",
                "In and NotIn need values; Exists and DoesNotExist take none",
            )
    config = node_config_of(body)
    if config.problem:
        field, problem = re.split(r": |=", config.problem, maxsplit=1)
        raise ObjectError(where, field, f"{problem}; correct it, or leave it out")
    local = spec.get("local") or {}
    _check_interfaces(where, local)
    _check_announcements(where, local.get("garpConfig") or {}, config)
    _check_lifetimes(where, "localInterface", config.addresses)
    _check_lifetimes(where, "dummyInterface", config.dummy_addresses)
    return config


def _check_interfaces(where: str, local: Json) -> None:
    listed = [(f"interfaces[{i}]", name) for i, name in enumerate(local.get("interfaces") or ())]
    dummy = [("dummyInterface", local["dummyInterface"])] if "dummyInterface" in local else []
    for field, name in listed + dummy:
        if not _INTERFACE.fullmatch(name):
            raise ObjectError(
                where,
                f"spec.local.{field}",
                f"{name!r} is not a valid interface name: 1 to 15 bytes",
            )


def _check_announcements(where: str, garp: Json, config: NodeConfig) -> None:
    """Check the numbers against their limits; errors name the field as it was spelled."""
    announce = config.announce
    for spellings, value, least, most, unit in (
        (("count",), announce.count, 1, 10, ""),
        (("intervalMs", "interval"), announce.interval, 0.1, 5, " s"),
        (("delayMs", "initialDelay"), announce.delay, 0, 5, " s"),
    ):
        if not least <= value <= most:
            field = next(spelling for spelling in spellings if spelling in garp)
            raise ObjectError(
                where,
                f"spec.local.garpConfig.{field}",
                f"is {value:g}{unit}; write {least:g}{unit} to {most:g}{unit}",
            )


def _check_lifetimes(where: str, interface: str, config: AddressConfig) -> None:
    path = f"spec.local.addressConfig.{interface}"
    valid, preferred = config.valid_lifetime, config.preferred_lifetime
    if valid < 0 or 0 < valid < _SHORTEST_LIFETIME:
        raise ObjectError(
            where, f"{path}.validLifetime", f"is {valid}; write 0 (no limit) or 60 seconds or more"
        )
    if preferred is not None and (preferred < 0 or 0 < valid < preferred):
        raise ObjectError(
            where,
            f"{path}.preferredLifetime",
            f"is {preferred}; write 0 to {valid}, the valid lifetime, or leave it out",
        )


def agent_warnings(config: NodeConfig, others: Iterable[NodeConfig]) -> Iterator[str]:
    """Yield a warning for each probably unintended setting of an LBNodeAgent, given all others."""
    # Objects without spec.local select no nodes.
    rivals = (other for other in others if config.has_local and other.has_local)
    for other in rivals:
        if frozenset(config.selector) == frozenset(other.selector):
            first, second = sorted((config.name, other.name))
            yield (
                f"LBNodeAgents {first} and {second} select the same nodes, and only the first by "
                f"name takes effect: give {second} another node selector, or delete it"
            )
    unmeant = also_matches(config.local_interface) if config.pattern else ""
    if unmeant:
        yield (
            f"LBNodeAgent {config.name} selects each interface with {config.local_interface!r} "
            f"anywhere in its name, so also one of the name {unmeant}: begin the expression with ^ "
            "and end it with $ to match whole names"
        )
    if config.local_interface == "none" and not config.interfaces:
        yield (
            f"LBNodeAgent {config.name} names no interface for local addresses, so its nodes "
            f"announce none of them: list interfaces, or select them by an expression"
        )


def deselected_warnings(
    configs: Sequence[NodeConfig], nodes: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Yield a warning if nodes announce nothing with these LBNodeAgents and no other ones.

    `nodes` maps each to its labels. Without any LBNodeAgent, all nodes have the defaults.
    """
    found = deselected(configs, nodes)
    if found:
        yield (
            f"no LBNodeAgent selects {few(found)}, so they announce nothing: create one without "
            "a node selector, for all nodes that no other one selects"
        )

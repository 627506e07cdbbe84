# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The custom resources of PureLB, ServiceGroup and LBNodeAgent, as records.

An invalid ServiceGroup raises an ObjectError that names the object, the field and the remedy. An
invalid LBNodeAgent becomes a record whose `problem` has the reason: its nodes announce nothing and
report it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import List, Tuple

from .. import names
from ..addresses import parse_aggregation, parse_range
from ..allocation.ipam import listed_ranges
from ..errors import ObjectError, SettingError
from ..model import AddressRange, ExternalSource, NetBoxSource, PoolType, ServiceGroup
from ..node.configuration import NodeConfig, Requirement
from ..settings import ON_DUMMY, AddressConfig, AnnounceConfig, parse_duration
from .codec import Json


def _ranges(spec: Json, where: str) -> Tuple[AddressRange, ...]:
    ranges: List[AddressRange] = []
    for version in (4, 6):
        single, many = f"v{version}pool", f"v{version}pools"
        entries = [(single, spec[single])] if spec.get(single) else []
        entries += [(f"{many}[{i}]", entry) for i, entry in enumerate(spec.get(many) or ())]
        for field, entry in entries:
            try:
                parsed = parse_range(
                    entry["pool"], entry["subnet"], entry.get("aggregation") or "default"
                )
            except KeyError as missing:
                raise ObjectError(where, field, f"{missing.args[0]} is missing") from missing
            except ValueError as error:
                raise ObjectError(where, field, str(error)) from error
            if parsed.first.version != version:
                raise ObjectError(where, field, f"must hold IPv{version} addresses")
            ranges.append(parsed)
    return tuple(ranges)


def service_group_of(body: Json) -> ServiceGroup:
    """Return the record of a ServiceGroup object."""
    meta, spec = body["metadata"], body.get("spec") or {}
    where = f"ServiceGroup {meta.get('namespace', '')}/{meta['name']}"
    kinds = [kind for kind in ("local", "remote", "netbox", "external") if spec.get(kind)]
    if len(kinds) != 1:
        raise ObjectError(
            where,
            "spec",
            "local, remote, netbox and external are mutually exclusive: write exactly one",
        )
    pools = spec[kinds[0]]
    group = ServiceGroup(
        name=meta["name"],
        namespace=meta.get("namespace", ""),
        uid=meta.get("uid", ""),
        created=meta.get("creationTimestamp") or "",
        generation=meta.get("generation", 0),
        namespaces=frozenset(spec.get("namespaces") or ()),
        enforces=bool(spec.get("enforceNamespaces")),
        is_namespace_default=bool(spec.get("namespaceDefault")),
        shares_across_namespaces=spec.get("sharing") == "cluster",
    )
    if kinds[0] in ("local", "remote"):
        return replace(
            group,
            pool_type=PoolType(kinds[0]),
            ranges=_ranges(pools, where),
            skip_dad=bool(pools.get("skipIPv6DAD")),
            multi_pool=bool(pools.get("multiPool")),
            balance_pools=bool(pools.get("balancePools")),
        )
    is_netbox = kinds[0] == "netbox"
    return replace(
        group,
        pool_type=PoolType.REMOTE if is_netbox else _announced(pools, where),
        ranges=listed_ranges((body.get("status") or {}).get("addresses") or ()),
        source=_netbox_source(pools, where) if is_netbox else _external_source(pools, where),
    )


def _announced(pools: Json, where: str) -> PoolType:
    try:
        return PoolType(pools.get("announce"))
    except ValueError as error:
        raise ObjectError(where, "spec.external.announce", "write local or remote") from error


def _netbox_source(pools: Json, where: str) -> NetBoxSource:
    for field in ("url", "tenant"):
        if not pools.get(field):
            raise ObjectError(where, f"spec.netbox.{field}", "is missing")
    try:
        aggregation = parse_aggregation(
            pools.get("aggregation") or "default", names.VERSIONS["IPv6"]
        )
    except ValueError as error:
        raise ObjectError(where, "spec.netbox.aggregation", str(error)) from error
    return NetBoxSource(
        pools["url"].rstrip("/"),
        pools["tenant"],
        aggregation,
        allows_http=bool(pools.get("allowHTTP")),
    )


def _external_source(pools: Json, where: str) -> ExternalSource:
    if not pools.get("provider"):
        raise ObjectError(where, "spec.external.provider", "is missing")
    return ExternalSource(pools["provider"], pools.get("socket") or names.IPAM_SOCKET)


def _requirements(selector: Json) -> Tuple[Requirement, ...]:
    exact = (
        Requirement(key, "In", (value,))
        for key, value in (selector.get("matchLabels") or {}).items()
    )
    expressions = (
        Requirement(entry["key"], entry["operator"], tuple(entry.get("values") or ()))
        for entry in selector.get("matchExpressions") or ()
    )
    return (*exact, *expressions)


def _announce_config(garp: Json) -> AnnounceConfig:
    """Parse times in both spellings: a number of milliseconds, or a text with a unit."""

    def seconds(number: str, text: str, default: float) -> float:
        if garp.get(text):
            return parse_duration(garp[text], f"garpConfig.{text}")
        return float(garp[number]) / 1000 if number in garp else default

    return AnnounceConfig(
        enabled=garp.get("enabled", AnnounceConfig.enabled),
        count=garp.get("count", AnnounceConfig.count),
        interval=seconds("intervalMs", "interval", AnnounceConfig.interval),
        delay=seconds("delayMs", "initialDelay", AnnounceConfig.delay),
        verify=garp.get("verifyBeforeSend", AnnounceConfig.verify),
    )


def _address_config(config: Json, default: AddressConfig) -> AddressConfig:
    return AddressConfig(
        valid_lifetime=config.get("validLifetime", default.valid_lifetime),
        preferred_lifetime=config.get("preferredLifetime"),
        no_prefix_route=config.get("noPrefixRoute", default.no_prefix_route),
    )


def node_config_of(body: Json) -> NodeConfig:
    """Return the record of an LBNodeAgent; `problem` has the reason if it is invalid."""
    meta, spec = body["metadata"], body.get("spec") or {}
    local = spec.get("local") or {}
    addresses = local.get("addressConfig") or {}
    config = NodeConfig(
        name=meta["name"],
        namespace=meta.get("namespace", ""),
        uid=meta.get("uid", ""),
        selector=_requirements(spec.get("nodeSelector") or {}),
        has_local=spec.get("local") is not None,
    )
    try:
        config = replace(
            config,
            local_interface=local.get("localInterface") or "default",
            interfaces=tuple(local.get("interfaces") or ()),
            announce=_announce_config(local.get("garpConfig") or {}),
            dummy_interface=local.get("dummyInterface") or names.DUMMY_INTERFACE,
            addresses=_address_config(addresses.get("localInterface") or {}, AddressConfig()),
            dummy_addresses=_address_config(addresses.get("dummyInterface") or {}, ON_DUMMY),
        )
        re.compile(config.local_interface)
    except re.error as error:
        text = local.get("localInterface")
        return replace(
            config,
            problem=f"spec.local.localInterface: {text!r} is not a regular expression: {error}",
        )
    except SettingError as error:
        return replace(config, problem=f"spec.local.{error}")
    return config

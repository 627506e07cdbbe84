# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What a node's kernel has, as purelb_vip_info tells it, and what purelb_verify reads of that."""

from __future__ import annotations

import os
import time
from fnmatch import fnmatchcase
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..core.addresses import parse_address, parse_ends
from ..core.audit.evidence import Observation, format_mac
from ..core.errors import PureLBError, SettingError
from ..core.model import Address, InterfaceAddress, Link
from ..core.names import FAMILIES, VERSIONS
from ..core.node.interfaces import lease_subnets, segments
from .netlink import Held, Interface, interfaces

# In IPVS mode kube-proxy puts the addresses of all Services on it, on each node.
IPVS_INTERFACE = "kube-ipvs0"

IsVip = Callable[[Address], bool]


def vip_info(params: Mapping[str, Any]) -> Dict[str, Any]:
    """The work of the module purelb_vip_info."""
    is_vip = selection(params["vips"] or (), params["pools"] or ())
    now = time.time()
    chosen = _chosen(interfaces(), params["interfaces"] or (), is_vip)
    return {
        "changed": False,
        "hostname": os.uname().nodename,
        "time": now,
        "vips": [
            {"interface": one.name, **_state_dict(one), **_held_dict(held)}
            for one in chosen
            for held in one.addresses
            if is_vip(held.address)
        ],
        "interfaces": [_interface_dict(one, is_vip) for one in chosen],
    }


def selection(vips: Iterable[str], pools: Iterable[str]) -> IsVip:
    """Whether an address is one of these, or inside of one of the pools."""
    wanted = frozenset(_read(parse_address, text, "vips") for text in vips)
    ends = [_read(parse_ends, text, "pools") for text in pools]
    ranges = [(first.version, int(first), int(last)) for first, last in ends]

    def is_vip(address: Address) -> bool:
        number = int(address)
        return address in wanted or any(
            version == address.version and first <= number <= last
            for version, first, last in ranges
        )

    return is_vip


def _read(parse: Callable[[str], Any], text: str, option: str) -> Any:
    try:
        return parse(text)
    except ValueError as problem:
        hint = "an address" if option == "vips" else "a CIDR or first-last"
        raise SettingError(f"{option}: {text!r} is not {hint} ({problem})") from problem


def _chosen(
    found: Iterable[Interface], patterns: Sequence[str], is_vip: IsVip
) -> Tuple[Interface, ...]:
    if patterns:
        return tuple(one for one in found if any(fnmatchcase(one.name, p) for p in patterns))
    known = (one for one in found if one.name != IPVS_INTERFACE)
    return tuple(one for one in known if one.default_metrics or _is_of_interest(one, is_vip))


def _is_of_interest(one: Interface, is_vip: IsVip) -> bool:
    """A node has hundreds of interfaces to its pods, with nothing but link-local addresses."""
    return any(
        is_vip(held.address) or not (held.address.is_link_local or held.address.is_loopback)
        for held in one.addresses
    )


def _state_dict(one: Interface) -> Dict[str, Any]:
    return {"mac": format_mac(one.mac), "up": one.is_up, "state": one.state}


def _held_dict(held: Held) -> Dict[str, Any]:
    return {
        "address": str(held.address),
        "family": FAMILIES[held.address.version],
        "prefix_length": held.prefixlen,
        "valid_lifetime": held.valid,
        "preferred_lifetime": held.preferred,
        "flags": list(held.flags),
    }


def _interface_dict(one: Interface, is_vip: IsVip) -> Dict[str, Any]:
    link = Link(one.index, one.name)
    addresses = [_record(one.index, _held_dict(held), now=0.0) for held in one.addresses]
    found = segments(
        (link,),
        addresses,
        is_vip=lambda held: held.expires_at is not None and is_vip(held.address),
    )
    return {
        "name": one.name,
        "index": one.index,
        **_state_dict(one),
        "default_metrics": {FAMILIES[v]: metric for v, metric in one.default_metrics.items()},
        "subnets": [str(subnet) for subnet in lease_subnets(found)],
        "addresses": [_held_dict(held) for held in one.addresses],
    }


def observation_of(node: str, result: Mapping[str, Any]) -> Observation:
    """What purelb_vip_info saw on a node; lifetimes end by that node's clock."""
    try:
        now = float(result["time"])
        links = tuple(map(_link_of, result["interfaces"]))
        addresses = tuple(
            _record(one["index"], held, now=now)
            for one in result["interfaces"]
            for held in one["addresses"]
        )
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise PureLBError(
            f"nodes: what is given for {node} is no result of purelb_vip_info ({problem!r}): "
            "register it on that node, and leave out nodes where it failed"
        ) from problem
    return Observation(node, links, addresses)


def _link_of(one: Mapping[str, Any]) -> Link:
    return Link(
        index=one["index"],
        name=one["name"],
        mac=mac_of(one["mac"]),
        is_up=one["up"],
        default_metrics={VERSIONS[f]: metric for f, metric in one["default_metrics"].items()},
    )


def _record(index: int, held: Mapping[str, Any], *, now: float) -> InterfaceAddress:
    flags = held["flags"]
    return InterfaceAddress(
        link=index,
        address=parse_address(held["address"]),
        prefixlen=held["prefix_length"],
        expires_at=_end(held["valid_lifetime"], now),
        preferred_until=_end(held["preferred_lifetime"], now),
        no_prefix_route="noprefixroute" in flags,
        tentative="tentative" in flags,
        dad_failed="dadfailed" in flags,
        deprecated="deprecated" in flags,
    )


def _end(lifetime: Optional[int], now: float) -> Optional[float]:
    return None if lifetime is None else now + lifetime


def mac_of(text: str) -> bytes:
    """Bytes of a MAC address as people write it; none of an interface that has none."""
    try:
        return bytes.fromhex(text.replace(":", ""))
    except ValueError:
        return b""


def own_addresses() -> List[Address]:
    """All addresses of this host."""
    return [held.address for one in interfaces() for held in one.addresses]

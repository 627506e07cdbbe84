# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Builds the result of purelb_vip_info on a node, and reads such results for purelb_verify."""

from __future__ import annotations

import os
import time
from fnmatch import fnmatchcase
from ipaddress import ip_network
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, Mapping, Optional, Sequence, Tuple

from ..core.addresses import parse_address, parse_ends, parse_mac, subnet_order
from ..core.audit.evidence import LinkSettings, Observation, format_mac
from ..core.errors import PureLBError, SettingError
from ..core.model import Address, InterfaceAddress, Link
from ..core.names import FAMILIES, OUR_PROTOCOLS, PROXY_INTERFACES, VERSIONS
from ..core.node.interfaces import lease_subnets, segments
from ..core.node.rtnetlink import AddressMessage, has_carrier
from .netlink import Interface, interfaces

_SETTINGS = Path("/proc/sys/net/ipv4/conf")
IsVip = Callable[[Address], bool]


def vip_info(params: Mapping[str, Any]) -> Dict[str, Any]:
    """Return the result of the module purelb_vip_info."""
    is_vip = selection(params["vips"] or (), params["pools"] or ())
    now = time.time()
    found = interfaces()
    chosen = _chosen(found, params["interfaces"] or (), is_vip)
    return {
        "changed": False,
        "hostname": os.uname().nodename,
        "time": now,
        "vips": [
            {"interface": interface.name, **_state_dict(interface), **_address_dict(held)}
            for interface in chosen
            for held in interface.addresses
            if is_vip(held.address)
        ],
        "interfaces": [_interface_dict(interface, is_vip) for interface in chosen],
        "proxies": [k.name for k in found if k.name in PROXY_INTERFACES],
    }


def selection(vips: Iterable[str], pools: Iterable[str]) -> IsVip:
    """Return a predicate: is an address one of these, or in one of these pools."""
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
    except ValueError as error:
        expected = "an address" if option == "vips" else "a CIDR or first-last"
        raise SettingError(f"{option}: {text!r} is not {expected} ({error})") from error


def _chosen(
    found: Iterable[Interface], patterns: Sequence[str], is_vip: IsVip
) -> Tuple[Interface, ...]:
    if patterns:
        return tuple(
            interface
            for interface in found
            if any(fnmatchcase(interface.name, pattern) for pattern in patterns)
        )
    return tuple(
        interface
        for interface in found
        if interface.name not in PROXY_INTERFACES
        and (interface.default_metrics or _is_of_interest(interface, is_vip))
    )


def _is_of_interest(interface: Interface, is_vip: IsVip) -> bool:
    """Whether it has a VIP or more than link-local addresses.

    A node has hundreds of interfaces to its pods, with nothing but link-local addresses.
    """
    return any(
        is_vip(held.address) or not (held.address.is_link_local or held.address.is_loopback)
        for held in interface.addresses
    )


def _state_dict(interface: Interface) -> Dict[str, Any]:
    return {"mac": format_mac(interface.mac), "up": interface.is_up, "state": interface.state}


def _address_dict(held: AddressMessage) -> Dict[str, Any]:
    return {
        "address": str(held.address),
        "family": FAMILIES[held.address.version],
        "prefix_length": held.prefixlen,
        "valid_lifetime": held.valid_lft,
        "preferred_lifetime": held.preferred_lft,
        "flags": list(held.flag_names),
        "protocol": held.protocol,
    }


def _interface_dict(interface: Interface, is_vip: IsVip) -> Dict[str, Any]:
    found = segments(
        (Link(interface.index, interface.name, interface.mac, on_link=interface.on_link),),
        [held.received_at(0.0) for held in interface.addresses],
        is_vip=lambda held: (
            held.protocol in OUR_PROTOCOLS or (held.expires_at is not None and is_vip(held.address))
        ),
    )
    metrics = interface.default_metrics
    return {
        "name": interface.name,
        "index": interface.index,
        **_state_dict(interface),
        "default_metrics": {FAMILIES[version]: metric for version, metric in metrics.items()},
        "arp_ignore": _setting(interface.name, "arp_ignore"),
        "rp_filter": _setting(interface.name, "rp_filter"),
        "subnets": [str(subnet) for subnet in lease_subnets(found)],
        "on_link": [str(subnet) for subnet in sorted(interface.on_link, key=subnet_order)],
        "addresses": [_address_dict(held) for held in interface.addresses],
    }


def _setting(interface: str, name: str) -> Optional[int]:
    """Return the IPv4 setting in force on an interface; None without IPv4 or such an interface."""
    values = []
    for each in ("all", interface):
        try:
            values.append(int((_SETTINGS / each / name).read_text()))
        except (OSError, ValueError):
            return None
    return max(values)


def observation_of(node: str, result: Mapping[str, Any]) -> Observation:
    """Read a node's result of purelb_vip_info; expiry times are on that node's clock."""
    try:
        now = float(result["time"])
        links = tuple(map(_link_of, result["interfaces"]))
        settings = {k["index"]: _settings_of(k) for k in result["interfaces"]}
        addresses = tuple(
            _address_of(interface["index"], held, now=now)
            for interface in result["interfaces"]
            for held in interface["addresses"]
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PureLBError(
            f"nodes: the value for {node} is not a result of purelb_vip_info ({error!r}): "
            "register it on that node, and leave out nodes where it failed"
        ) from error
    return Observation(node, links, addresses, settings, tuple(result.get("proxies") or ()))


def _link_of(interface: Mapping[str, Any]) -> Link:
    metrics = interface["default_metrics"]
    return Link(
        index=interface["index"],
        name=interface["name"],
        mac=parse_mac(interface["mac"]),
        is_up=interface["up"],
        has_carrier=has_carrier(interface["state"]),
        default_metrics={VERSIONS[family]: metric for family, metric in metrics.items()},
        on_link=frozenset(map(ip_network, interface.get("on_link", ()))),
    )


def _settings_of(interface: Mapping[str, Any]) -> LinkSettings:
    return LinkSettings(interface.get("arp_ignore"), interface.get("rp_filter"))


def _address_of(index: int, held: Mapping[str, Any], *, now: float) -> InterfaceAddress:
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
        protocol=held["protocol"],
    )


def _end(lifetime: Optional[int], now: float) -> Optional[float]:
    return None if lifetime is None else now + lifetime

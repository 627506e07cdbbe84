# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Resolves addresses on a segment and collects the MAC addresses of all hosts that reply.

Sends what any client sends: ARP requests or neighbour solicitations with an own source address.
An IPv6 solicitation without a source address would be taken for duplicate address detection: a
host that is just adding the address would give it up (RFC 4862, 5.4.3).
The only file that imports scapy.
"""

from __future__ import annotations

import time
import traceback
from collections import defaultdict
from ipaddress import IPv4Address, IPv6Address
from select import select
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Set, Tuple

from ..core.addresses import parse_address
from ..core.audit.evidence import format_mac
from ..core.errors import PureLBError, SettingError
from ..core.model import Address
from ..core.names import FAMILIES
from ..core.node.packets import parse_claim
from .netlink import Interface, interfaces

try:
    from scapy.config import conf
    from scapy.layers.inet6 import ICMPv6ND_NS, ICMPv6NDOptSrcLLAddr, IPv6
    from scapy.layers.l2 import ARP, Ether

    IMPORT_ERROR = None
except ImportError:
    IMPORT_ERROR = traceback.format_exc()

_BROADCAST = "ff:ff:ff:ff:ff:ff"
_SOLICITED_NODE = IPv6Address("ff02::1:ff00:0")
# Frames in a burst, and seconds between two: more would overrun the buffers of small switches.
_BURST, _PAUSE = 50, 0.005
_NOT_ROUTED = ("0.0.0.0", "::")  # noqa: S104 - scapy's next hop for a directly connected address

Claims = Dict[Address, Set[bytes]]


class QueryInterface(NamedTuple):
    """An interface to send requests on, and its own addresses."""

    name: str
    mac: bytes
    addresses: Tuple[Address, ...]


def neighbor_info(params: Mapping[str, Any]) -> Dict[str, Any]:
    """The work of the module purelb_neighbor_info."""
    if params["count"] < 1 or params["timeout"] <= 0:
        raise SettingError("timeout and count must be greater than 0")
    vips = [_parse(text) for text in params["vips"]]
    here = {interface.name: interface for interface in interfaces()}
    by_interface: Dict[str, List[Address]] = defaultdict(list)
    skipped = []
    for vip in vips:
        name = params["interface"] or _interface_to(vip)
        if name:
            by_interface[name].append(vip)
        elif params["skip_routed"]:
            skipped.append(str(vip))
        else:
            raise PureLBError(
                f"{vip} is not on a segment of this host: run purelb_neighbor_info on a host of "
                "its segment, name the interface, or set skip_routed"
            )
    used = {name: _query_interface(here, name) for name in by_interface}
    claims: Claims = {}
    for name, addresses in by_interface.items():
        claims.update(
            query(used[name], addresses, seconds=params["timeout"], times=params["count"])
        )
    own = {held.address for interface in here.values() for held in interface.addresses}
    answers = [
        {
            "address": str(vip),
            "family": FAMILIES[vip.version],
            "interface": name,
            "macs": sorted(map(format_mac, claims[vip])),
            "own": vip in own,
        }
        for name, addresses in by_interface.items()
        for vip in addresses
    ]
    return {"changed": False, "answers": answers, "skipped": skipped}


def _parse(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        raise SettingError(f"vips: {text!r} is not an address ({error})") from error


def _interface_to(vip: Address) -> str:
    """Returns the interface of a directly connected address; empty if there is none."""
    routes = conf.route if isinstance(vip, IPv4Address) else conf.route6
    name, _own, gateway = routes.route(str(vip))
    is_routed = gateway not in _NOT_ROUTED or str(name) == str(conf.loopback_name)
    return "" if is_routed else str(name)


def _query_interface(here: Mapping[str, Interface], name: str) -> QueryInterface:
    interface = here.get(name)
    if interface is None or not interface.is_up:
        state = "does not exist" if interface is None else "is down"
        up = ", ".join(sorted(other.name for other in here.values() if other.is_up))
        raise PureLBError(f"interface: {name} {state}; these are up: {up}")
    own = tuple(held.address for held in interface.addresses)
    return QueryInterface(name, interface.mac, own)


def query(
    interface: QueryInterface, vips: Iterable[Address], *, seconds: float, times: int
) -> Claims:
    """Send `times` requests for each address within `seconds`; returns the MACs that replied."""
    claims: Claims = {vip: set() for vip in vips}
    frames = [build_request(interface, vip) for vip in claims]
    try:
        # Replies are sent to our own MAC address, so promiscuous mode is not needed.
        segment = conf.L2socket(iface=interface.name, promisc=False)
    except OSError as error:
        raise _socket_error(interface.name, error) from error
    try:
        for _round in range(times):
            end = time.monotonic() + seconds / times
            for number, frame in enumerate(frames, start=1):
                segment.send(frame)
                if number % _BURST == 0:
                    _listen(segment, interface, claims, until=time.monotonic() + _PAUSE)
            _listen(segment, interface, claims, until=end)
    finally:
        segment.close()
    return claims


def _listen(segment: Any, interface: QueryInterface, claims: Claims, *, until: float) -> None:
    """Record replies until a time; frames stay bytes, as scapy is too slow to dissect all."""
    while select([segment.ins], [], [], max(0.0, until - time.monotonic()))[0]:
        _kind, frame, _when = segment.recv_raw()
        if frame:
            record_reply(frame, interface.mac, claims)


def _socket_error(name: str, error: OSError) -> PureLBError:
    if isinstance(error, PermissionError):
        return PureLBError(
            "not allowed to send and receive frames: run purelb_neighbor_info as root "
            "(become: true), or with the capability NET_RAW"
        )
    return PureLBError(f"cannot use the interface {name}: {error}")


def build_request(interface: QueryInterface, vip: Address) -> Any:
    """Returns the frame with which a client resolves an address."""
    mac, source = format_mac(interface.mac), _source(interface, vip)
    if isinstance(vip, IPv4Address):
        # Without an own address it is an ARP probe (RFC 5227, 2.1.1), which hosts answer, too.
        request = ARP(op="who-has", hwsrc=mac, psrc=source or "0.0.0.0", pdst=str(vip))  # noqa: S104
        return Ether(src=mac, dst=_BROADCAST) / request
    if source is None:
        raise PureLBError(
            f"{interface.name} has no IPv6 source address for {vip}: enable IPv6 on it, or name "
            "another interface"
        )
    group = IPv6Address(_SOLICITED_NODE.packed[:13] + vip.packed[13:])
    return (
        Ether(src=mac, dst=format_mac(b"\x33\x33" + group.packed[-4:]))
        / IPv6(src=source, dst=str(group), hlim=255)
        / ICMPv6ND_NS(tgt=str(vip))
        / ICMPv6NDOptSrcLLAddr(lladdr=mac)
    )


def _source(interface: QueryInterface, vip: Address) -> Optional[str]:
    """Returns an own address of the family, for IPv6 preferably link-local, or None."""
    of_family = [own for own in interface.addresses if own.version == vip.version and own != vip]
    is_v6 = isinstance(vip, IPv6Address)
    of_family.sort(key=lambda own: own.is_link_local is not is_v6)
    return str(of_family[0]) if of_family else None


def record_reply(frame: bytes, own: bytes, claims: Claims) -> None:
    """Record the sender of a frame to our own MAC; a broadcast is an announcement, no reply."""
    claim = parse_claim(frame) if frame[:6] == own else None
    if claim is not None and claim.address in claims:
        claims[claim.address].add(claim.mac)

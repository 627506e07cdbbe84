# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Asks a segment who has an address, and collects everybody who answers.

Asks as any client asks, by an ARP request or a neighbour solicitation with an address of its own.
A probe without a sender would do for IPv4, but a host that is just taking an IPv6 address would
take it for another one that wants the same address, and give up.
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
# More at once would overrun the buffers of small switches, and our own.
_BURST, _PAUSE = 50, 0.005
_NOT_ROUTED = ("0.0.0.0", "::")  # noqa: S104 - what scapy calls a next hop that there is none

Claims = Dict[Address, Set[bytes]]


class Place(NamedTuple):
    """An interface to ask by, and the own addresses on it."""

    name: str
    mac: bytes
    addresses: Tuple[Address, ...]


def neighbor_info(params: Mapping[str, Any]) -> Dict[str, Any]:
    """The work of the module purelb_neighbor_info."""
    if params["count"] < 1 or params["timeout"] <= 0:
        raise SettingError("timeout and count must be more than 0, or nobody is asked")
    vips = [_parse(text) for text in params["vips"]]
    here = {one.name: one for one in interfaces()}
    by_place: Dict[str, List[Address]] = defaultdict(list)
    for vip in vips:
        by_place[params["interface"] or _interface_to(vip)].append(vip)
    places = {name: _place(here, name) for name in by_place}
    claims: Claims = {}
    for name, asked in by_place.items():
        claims.update(ask(places[name], asked, seconds=params["timeout"], times=params["count"]))
    own = {held.address for one in here.values() for held in one.addresses}
    answers = [
        {
            "address": str(vip),
            "family": FAMILIES[vip.version],
            "interface": name,
            "macs": sorted(map(format_mac, claims[vip])),
            "own": vip in own,
        }
        for name, asked in by_place.items()
        for vip in asked
    ]
    return {"changed": False, "answers": answers}


def _parse(text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as problem:
        raise SettingError(f"vips: {text!r} is not an address ({problem})") from problem


def _interface_to(vip: Address) -> str:
    """The interface behind which the kernel looks for the address itself."""
    routes = conf.route if isinstance(vip, IPv4Address) else conf.route6
    name, _own, gateway = routes.route(str(vip))
    if gateway not in _NOT_ROUTED or str(name) == str(conf.loopback_name):
        raise PureLBError(
            f"{vip} is not on a segment of this host: run purelb_neighbor_info on a host of its "
            "segment, or name the interface"
        )
    return str(name)


def _place(here: Mapping[str, Interface], name: str) -> Place:
    one = here.get(name)
    if one is None or not one.is_up:
        state = "is not there" if one is None else "is down"
        up = ", ".join(sorted(other.name for other in here.values() if other.is_up))
        raise PureLBError(f"interface: {name} {state}; up are: {up}")
    return Place(name, one.mac, tuple(held.address for held in one.addresses))


def ask(place: Place, vips: Iterable[Address], *, seconds: float, times: int) -> Claims:
    """Ask for each address so many times, evenly spread; who answered until the time is over."""
    claims: Claims = {vip: set() for vip in vips}
    frames = [build_question(place, vip) for vip in claims]
    try:
        # Answers come to our own address: no need to hear what is for others.
        segment = conf.L2socket(iface=place.name, promisc=False)
    except OSError as problem:
        raise _refused(place.name, problem) from problem
    try:
        for _round in range(times):
            end = time.monotonic() + seconds / times
            for number, frame in enumerate(frames, start=1):
                segment.send(frame)
                if number % _BURST == 0:
                    _listen(segment, place, claims, until=time.monotonic() + _PAUSE)
            _listen(segment, place, claims, until=end)
    finally:
        segment.close()
    return claims


def _listen(segment: Any, place: Place, claims: Claims, *, until: float) -> None:
    """Take the frames as bytes: to dissect each one of a busy segment would lose answers."""
    while select([segment.ins], [], [], max(0.0, until - time.monotonic()))[0]:
        _kind, frame, _when = segment.recv_raw()
        if frame:
            heard(frame, place.mac, claims)


def _refused(name: str, problem: OSError) -> PureLBError:
    if isinstance(problem, PermissionError):
        return PureLBError(
            "not allowed to send and receive frames: run purelb_neighbor_info as root "
            "(become: true), "
            "or with the capability NET_RAW"
        )
    return PureLBError(f"cannot use the interface {name}: {problem}")


def build_question(place: Place, vip: Address) -> Any:
    """The frame by which a client asks who has an address."""
    mac, source = format_mac(place.mac), _source(place, vip)
    if isinstance(vip, IPv4Address):
        # Without an own address it is a probe (RFC 5227, 2.1.1), which hosts answer, too.
        question = ARP(op="who-has", hwsrc=mac, psrc=source or "0.0.0.0", pdst=str(vip))  # noqa: S104
        return Ether(src=mac, dst=_BROADCAST) / question
    if source is None:
        raise PureLBError(
            f"{place.name} has no IPv6 address to ask for {vip} from: bring IPv6 up on it, or name "
            "another interface"
        )
    group = IPv6Address(_SOLICITED_NODE.packed[:13] + vip.packed[13:])
    return (
        Ether(src=mac, dst=format_mac(b"\x33\x33" + group.packed[-4:]))
        / IPv6(src=source, dst=str(group), hlim=255)
        / ICMPv6ND_NS(tgt=str(vip))
        / ICMPv6NDOptSrcLLAddr(lladdr=mac)
    )


def _source(place: Place, vip: Address) -> Optional[str]:
    """An own address of the family, of IPv6 the link-local one if there is one."""
    of_family = [one for one in place.addresses if one.version == vip.version and one != vip]
    is_v6 = isinstance(vip, IPv6Address)
    of_family.sort(key=lambda one: one.is_link_local is not is_v6)
    return str(of_family[0]) if of_family else None


def heard(frame: bytes, own: bytes, claims: Claims) -> None:
    """Note who answers us; what is for everybody is an announcement and answers nobody."""
    claim = parse_claim(frame) if frame[:6] == own else None
    if claim is not None and claim.address in claims:
        claims[claim.address].add(claim.mac)

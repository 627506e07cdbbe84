# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Where the programs of the fence belong: on which interfaces, in which direction."""

from __future__ import annotations

from typing import AbstractSet, Dict, Iterable, Mapping, NamedTuple

from ..model import InterfaceAddress, Link, Network
from .programs import FenceProgram

# Interfaces that lead to a Pod or to nowhere, through a tunnel, or into a switch that answers
# itself, unless they announce.
_POD_KINDS = frozenset({"veth", "netkit"})
_NO_LAN_KINDS = frozenset({"dummy", "ifb", "vxlan", "geneve", "gretap", "ip6gretap", "openvswitch"})


class Hook(NamedTuple):
    """One direction of an interface, by its index."""

    link: int
    is_egress: bool


def announcing_links(
    selected: Iterable[int], links: Iterable[Link], addresses: Iterable[InterfaceAddress]
) -> frozenset[int]:
    """Return the interfaces on which other hosts reach the addresses on the `selected` ones.

    Also another one with an own address in a subnet of these: it is on the same segment, and the
    kernel takes on it what is for any address of the node.
    """
    chosen = frozenset(selected)
    ethernet = {link.index for link in links if link.is_ethernet and link.kind != "dummy"}
    held = [own for own in addresses if not own.address.is_link_local]
    subnets = {own.network for own in held if own.link in chosen and _is_subnet(own.network)}
    joined = (own.link for own in held if own.link in ethernet and own.network in subnets)
    return chosen.union(joined)


def _is_subnet(network: Network) -> bool:
    return network.prefixlen < network.max_prefixlen


def wanted_programs(
    announcing: AbstractSet[int], links: Iterable[Link], addresses: Iterable[InterfaceAddress]
) -> Mapping[Hook, FenceProgram]:
    """Return the program of each hook.

    On announcing interfaces both directions are guarded. On the other Ethernet interfaces only ARP
    is, which the kernel answers there for any of its addresses: not on those of Pods (a veth with
    no address of its own), nor in a bridge or bond. A bond that announces may send ARP by its parts
    past itself (balance-alb), so these are guarded, too.
    """
    by_index = {link.index: link for link in links}
    numbered = {held.link for held in addresses if not held.address.is_link_local}
    wanted: Dict[Hook, FenceProgram] = {}
    for index, link in by_index.items():
        if not link.is_ethernet:
            continue
        if index in announcing:
            wanted[Hook(index, is_egress=False)] = FenceProgram.INGRESS
            wanted[Hook(index, is_egress=True)] = FenceProgram.EGRESS
        elif _answers(link, by_index, announcing, numbered):
            wanted[Hook(index, is_egress=True)] = FenceProgram.ARP
    return wanted


def _answers(
    link: Link,
    links: Mapping[int, Link],
    announcing: AbstractSet[int],
    numbered: AbstractSet[int],
) -> bool:
    """Whether ARP about addresses on an announcing interface may leave by this one."""
    if link.master:
        master = links.get(link.master)
        return link.master in announcing and master is not None and master.kind == "bond"
    if link.kind in _POD_KINDS:
        return link.index in numbered
    return link.kind not in _NO_LAN_KINDS

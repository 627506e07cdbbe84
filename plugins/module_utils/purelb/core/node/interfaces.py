# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""On which interfaces a node announces, and which subnets it therefore writes into its Lease.

Both come from one selection, so a node never advertises a subnet in which it would not announce.
"""

from __future__ import annotations

from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple

from ..addresses import is_of_an_interface, subnet_order
from ..model import Address, InterfaceAddress, Link, Network
from ..names import MAX_MACS, MAX_SUBNETS, OUR_PROTOCOLS
from .configuration import NodeConfig, matches_a_part


def default_links(links: Iterable[Link]) -> Tuple[Link, ...]:
    """Return the interfaces with the default route of lowest metric for IPv4 and for IPv6."""
    known = tuple(links)
    chosen = []
    for version in (4, 6):
        routed = [link for link in known if link.is_up and version in link.default_metrics]
        if routed:
            best = min(routed, key=lambda link: (link.default_metrics[version], link.index))
            if best not in chosen:
                chosen.append(best)
    return tuple(chosen)


def selected_links(links: Iterable[Link], config: NodeConfig) -> Tuple[Link, ...]:
    """Return the configured interfaces: those that the rule selects, then existing extra ones.

    An expression matches anywhere in a name, as in the Go implementation. The dummy interface is
    never used for local addresses, even if the configuration selects it.
    """
    known = tuple(link for link in links if link.name != config.dummy_interface)
    pattern = config.pattern
    if pattern is not None:
        chosen = [link for link in known if link.is_up and pattern.search(link.name)]
    else:
        chosen = list(default_links(known)) if config.local_interface == "default" else []
    by_name = {link.name: link for link in known}
    extra = [by_name[name] for name in config.interfaces if name in by_name]
    return tuple(dict.fromkeys((*chosen, *extra)))


def selected_by_part(links: Iterable[Link], config: NodeConfig) -> Tuple[str, ...]:
    """Return the names that the expression selects if some of them are hardly meant, else none."""
    pattern = config.pattern
    if pattern is None:
        return ()
    names = tuple(
        link.name
        for link in links
        if link.is_up and link.name != config.dummy_interface and pattern.search(link.name)
    )
    return names if matches_a_part(pattern, names) else ()


def _defines_segment(held: InterfaceAddress) -> bool:
    """Whether an address shows which segment its interface is on; a deprecated one still does."""
    return not (
        held.address.is_link_local or held.address.is_loopback or held.tentative or held.dad_failed
    )


def _on_link(link: Link, own: Sequence[InterfaceAddress]) -> Iterator[Network]:
    """Yield the on-link routes that show the segment of addresses with the mask of one host.

    Providers give a node such an address, by DHCPv6 or point-to-point, and a route to its
    neighbors. Other on-link routes do not count: with its own mask an address shows its subnet.
    """
    hosts = [a.address for a in own if a.prefixlen == a.address.max_prefixlen]
    alone = {a.version for a in hosts} - {
        a.address.version for a in own if a.prefixlen < a.address.max_prefixlen
    }
    for network in link.on_link if link.is_ethernet else ():
        if network.version in alone or any(host in network for host in hosts):
            yield network


def segments(
    links: Sequence[Link],
    addresses: Iterable[InterfaceAddress],
    *,
    is_vip: Callable[[InterfaceAddress], bool],
) -> Tuple[Tuple[Link, Network], ...]:
    """Return the subnets of these interfaces in interface order; VIPs define no subnet.

    An interface without a carrier is on no segment, with any addresses. What is too wide for a
    subnet is none: a Lease that lists it would be refused.
    """
    order = {link.index: position for position, link in enumerate(links) if link.has_carrier}
    own: Dict[int, List[InterfaceAddress]] = {position: [] for position in order.values()}
    for held in addresses:
        if held.link in order and not is_vip(held) and _defines_segment(held):
            own[order[held.link]].append(held)
    found = {(position, held.network) for position, held_here in own.items() for held in held_here}
    for position, held_here in own.items():
        found.update((position, network) for network in _on_link(links[position], held_here))
    narrow = (item for item in found if is_of_an_interface(item[1]))
    ordered = sorted(narrow, key=lambda item: (item[0], subnet_order(item[1])))
    return tuple((links[position], network) for position, network in ordered)


def lease_subnets(found: Iterable[Tuple[Link, Network]]) -> Tuple[Network, ...]:
    """Return the subnets for the Lease of a node in these segments: sorted, at most 256."""
    return tuple(sorted({network for _link, network in found}, key=subnet_order))[:MAX_SUBNETS]


def segment_macs(
    selected: Iterable[Link], links: Iterable[Link], addresses: Iterable[InterfaceAddress]
) -> Tuple[bytes, ...]:
    """Return the MACs with which a node answers on segments: of links with addresses; at most 16.

    Those of the selected links come first. Our own addresses say nothing: they are on these.
    """
    own = (held for held in addresses if held.protocol not in OUR_PROTOCOLS)
    used = {a.link for a in own if not (a.address.is_link_local or a.address.is_loopback)}
    others = sorted((k for k in links if k.index in used), key=lambda link: link.index)
    found = (link.mac for link in (*selected, *others) if link.is_ethernet and any(link.mac))
    return tuple(dict.fromkeys(found))[:MAX_MACS]


def place_for(
    address: Address, found: Iterable[Tuple[Link, Network]]
) -> Optional[Tuple[Link, Network]]:
    """Return the first segment that contains the address, or None."""
    return next((segment for segment in found if address in segment[1]), None)

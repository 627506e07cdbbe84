# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which interfaces a node announces on, and which subnets it therefore tells its peers.

Both come from one selection, so that a node never advertises a subnet that it would not announce
on.
"""

from __future__ import annotations

from typing import Callable, Iterable, Optional, Sequence, Tuple

from ..addresses import subnet_order
from ..model import Address, InterfaceAddress, Link, Network
from ..names import MAX_SUBNETS
from .configuration import NodeConfig


def default_links(links: Iterable[Link]) -> Tuple[Link, ...]:
    """Interfaces with the lowest-metric default route: of IPv4, and of IPv6 where it differs."""
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
    """Interfaces that a configuration names: by its rule, then the extra ones that there are.

    An expression matches anywhere in a name, as in the Go implementation. The interface for remote
    addresses is none for local ones, whatever is written.
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


def _tells_segment(held: InterfaceAddress) -> bool:
    """Whether an address tells what segment its interface is on."""
    return not (
        held.address.is_link_local
        or held.address.is_loopback
        or held.deprecated
        or held.tentative
        or held.dad_failed
    )


def segments(
    links: Sequence[Link],
    addresses: Iterable[InterfaceAddress],
    *,
    is_vip: Callable[[InterfaceAddress], bool],
) -> Tuple[Tuple[Link, Network], ...]:
    """The subnets that these interfaces are in, by order of interface; a VIP makes no subnet."""
    order = {link.index: position for position, link in enumerate(links)}
    found = {
        (order[held.link], held.network)
        for held in addresses
        if held.link in order and _tells_segment(held) and not is_vip(held)
    }
    ordered = sorted(found, key=lambda one: (one[0], subnet_order(one[1])))
    return tuple((links[position], network) for position, network in ordered)


def lease_subnets(found: Iterable[Tuple[Link, Network]]) -> Tuple[Network, ...]:
    """Subnets that a node in these segments puts into its Lease, sorted, at most 256."""
    return tuple(sorted({network for _link, network in found}, key=subnet_order))[:MAX_SUBNETS]


def place_for(
    address: Address, found: Iterable[Tuple[Link, Network]]
) -> Optional[Tuple[Link, Network]]:
    """The first segment that holds the address."""
    return next((one for one in found if address in one[1]), None)

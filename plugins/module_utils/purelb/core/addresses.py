# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The parser of addresses, ranges and subnets in pools, Leases and annotations."""

from __future__ import annotations

import re
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Iterable, Optional, Tuple

from .model import MAC_BYTES, Address, AddressRange, Network
from .names import SHORTEST_PREFIX

# Before a digit of the same dotted part.
_LEADING_ZEROS = re.compile(r"(?<![0-9a-fA-F])0+(?=[0-9]+(\.|$))")
_SHORTEST_MASK = 8
_MAX_PREFIX = {4: 32, 6: 128}
_EVERYTHING = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}


def parse_mac(text: str) -> bytes:
    """Return the bytes of a MAC address in text form; b"" if the text is none."""
    try:
        found = bytes.fromhex(text.replace(":", ""))
    except ValueError:
        return b""
    return found if len(found) == MAC_BYTES else b""


def parse_address(text: str) -> Address:
    """Return an address in its canonical form; raises a ValueError that quotes the text.

    An IPv4-mapped IPv6 address becomes the IPv4 address, as in Go's net.IP: the election must not
    depend on the spelling. A zone (fe80::1%eth0, RFC 4007) is refused: it would make a second
    address of the same number.
    """
    address = ip_address(text.strip())
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            raise ValueError(f"{text!r} has a zone; write the address without %{address.scope_id}")
        if address.ipv4_mapped is not None:
            return address.ipv4_mapped
    return address


def listed(addresses: Iterable[Address]) -> str:
    """Return the addresses as text in numerical order, IPv4 before IPv6."""
    return ", ".join(map(str, sorted(addresses, key=lambda a: (a.version, int(a)))))


def parse_stored_address(text: str) -> Address:
    """Return the address that an API object holds, also in a spelling that we would refuse.

    Older API servers stored IPv4 parts with leading zeros, which they and kube-proxy read as
    decimal numbers (k8s.io/utils/net.ParseIPSloppy), and zones. Raises ValueError.
    """
    bare = text.strip().partition("%")[0]
    return parse_address(_LEADING_ZEROS.sub("", bare) if "." in bare else bare)


def _network(text: str, *, strict: bool) -> Network:
    if "%" in text:
        raise ValueError(f"{text!r} has a zone; write the subnet without it")
    return ip_network(text.strip(), strict=strict)


def parse_subnets(texts: Iterable[str]) -> Tuple[Tuple[Network, ...], Tuple[str, ...]]:
    """Return the networks of all valid CIDRs, with host bits dropped, and the invalid texts."""
    good, bad = [], []
    for text in texts:
        try:
            good.append(_network(text, strict=False))
        except ValueError:
            bad.append(text)
    return tuple(good), tuple(bad)


def is_of_an_interface(network: Network) -> bool:
    """Whether a network may be the subnet of a node's interface, and is not much wider."""
    return network.prefixlen >= SHORTEST_PREFIX[network.version]


def subnet_order(network: Network) -> Tuple[int, int, int]:
    """Return the key for sorting networks of both families."""
    return network.version, int(network.network_address), network.prefixlen


def parse_ends(pool: str) -> Tuple[Address, Address]:
    """Return both addresses of `first-last`, or the first and last of a CIDR, as written."""
    if "-" in pool:
        first, _dash, last = pool.partition("-")
        return parse_address(first), parse_address(last)
    network = _network(pool, strict=True)
    return network.network_address, network.broadcast_address


def parse_aggregation(text: str, version: int) -> Optional[int]:
    """Return a mask's prefix length, or None for `default`; a ValueError has the remedy."""
    if text == "default":
        return None
    length = int(text.removeprefix("/")) if text.startswith("/") else -1
    if not _SHORTEST_MASK <= length <= _MAX_PREFIX[version]:
        raise ValueError(
            f"aggregation {text!r} must be 'default' or a mask from /8 to /{_MAX_PREFIX[version]}"
        )
    return length


def parse_range(pool: str, subnet: str, aggregation: str = "default") -> AddressRange:
    """Parse one entry of a pool; a ValueError names the fault and the remedy."""
    first, last = parse_ends(pool)
    network = _network(subnet, strict=False)
    if not first.version == last.version == network.version:
        raise ValueError(f"pool {pool!r} and subnet {subnet!r} must be of one IP family")
    if int(last) < int(first):
        raise ValueError(f"pool {pool!r} ends before it starts; write it as first-last")
    if first not in network or last not in network:
        raise ValueError(f"pool {pool!r} must lie inside its subnet {network}")
    return AddressRange(first, last, network, parse_aggregation(aggregation, network.version))


def parse_bare_range(pool: str, prefixlen: str = "") -> AddressRange:
    """Parse `first-last` without a known subnet; by default each address is a single host."""
    first, last = parse_ends(pool)
    if first.version != last.version or int(last) < int(first):
        raise ValueError(f"pool {pool!r} ends before it starts; write it as first-last")
    length = parse_aggregation(f"/{prefixlen or first.max_prefixlen}", first.version)
    return AddressRange(first, last, _EVERYTHING[first.version], length)

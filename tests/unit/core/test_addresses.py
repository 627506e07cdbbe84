# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.addresses import listed, parse_address, parse_range, parse_subnets


@pytest.mark.parametrize(
    ("pool", "subnet", "first", "last", "size"),
    [
        ("192.168.1.240-192.168.1.250", "192.168.1.0/24", "192.168.1.240", "192.168.1.250", 11),
        ("10.0.0.0/30", "10.0.0.0/24", "10.0.0.0", "10.0.0.3", 4),
        ("fd53::-fd53::3", "fd53::/120", "fd53::", "fd53::3", 4),
        ("2001:db8::/64", "2001:db8::/64", "2001:db8::", "2001:db8::ffff:ffff:ffff:ffff", 2**64),
        ("10.0.0.7-10.0.0.7", "10.0.0.0/24", "10.0.0.7", "10.0.0.7", 1),
    ],
)
def test_a_pool_is_read(pool, subnet, first, last, size):
    one = parse_range(pool, subnet)
    assert (one.first, one.last, one.size) == (ip_address(first), ip_address(last), size)
    assert one.prefixlen == ip_network(subnet).prefixlen
    assert one.first in one
    assert one.last in one
    assert one.last + 1 not in one


def test_the_other_family_is_never_in_a_range():
    assert ip_address("::1") not in parse_range("0.0.0.0/0", "0.0.0.0/0")


@pytest.mark.parametrize(
    ("aggregation", "prefixlen"), [("default", 24), ("/32", 32), ("/25", 25), ("/8", 8)]
)
def test_aggregation_sets_the_mask(aggregation, prefixlen):
    assert parse_range("10.0.0.0/30", "10.0.0.0/24", aggregation).prefixlen == prefixlen


@pytest.mark.parametrize(
    ("pool", "subnet", "aggregation", "problem"),
    [
        ("10.0.0.9-10.0.0.1", "10.0.0.0/24", "default", "ends before it starts"),
        ("10.0.1.1-10.0.1.9", "10.0.0.0/24", "default", "inside its subnet"),
        ("10.0.0.1-10.0.1.9", "10.0.0.0/24", "default", "inside its subnet"),
        ("10.0.0.1-fd53::1", "10.0.0.0/24", "default", "one IP family"),
        ("10.0.0.0/30", "fd53::/64", "default", "one IP family"),
        ("10.0.0.1/30", "10.0.0.0/24", "default", "host bits"),
        ("ten", "10.0.0.0/24", "default", "ten"),
        ("10.0.0.0/30", "10.0.0.0/24", "/33", "from /8 to /32"),
        ("10.0.0.0/30", "10.0.0.0/24", "/7", "from /8 to /32"),
        ("fd53::/126", "fd53::/64", "/129", "from /8 to /128"),
        ("fd53::/126", "fd53::/64", "64", "'default' or a mask"),
    ],
)
def test_a_pool_that_cannot_be_is_refused_with_its_text(pool, subnet, aggregation, problem):
    with pytest.raises(ValueError, match=problem):
        parse_range(pool, subnet, aggregation)


def test_subnets_that_are_none_are_kept_apart():
    good, bad = parse_subnets(["10.0.0.5/24", "nonsense", "fd53::/64"])
    assert good == (ip_network("10.0.0.0/24"), ip_network("fd53::/64"))
    assert bad == ("nonsense",)


@pytest.mark.parametrize(
    "text", ["fd00::11%1", "fe80::1%eth0", "::ffff:192.0.2.1%1", "fd00::11%", "192.0.2.1%1"]
)
def test_an_address_with_a_zone_is_refused(text):
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_address(text)


@pytest.mark.parametrize("text", ["fd00::%1/64", "fd00::/64%1", "::ffff:192.0.2.0%1/120"])
def test_a_subnet_with_a_zone_is_refused(text):
    assert parse_subnets([text]) == ((), (text,))
    with pytest.raises(ValueError, match="zone"):
        parse_range("fd00::1-fd00::9", text)


def test_a_pool_with_a_zone_is_refused():
    with pytest.raises(ValueError, match="zone"):
        parse_range("fd00::1%1-fd00::9", "fd00::/64")


def _v4_spellings(number: int) -> list[str]:
    plain = str(IPv4Address(number))
    high, low = divmod(number, 1 << 16)
    return [plain, f" {plain} ", f"::ffff:{plain}", f"::FFFF:{plain}", f"::ffff:{high:x}:{low:x}",
            f"0:0:0:0:0:ffff:{high:04X}:{low:04x}", f"0000::ffff:{plain}"]  # fmt: skip


def _v6_spellings(number: int) -> list[str]:
    address = IPv6Address(number)
    groups = address.exploded.split(":")
    embedded = ":".join(groups[:6]) + f":{IPv4Address(number & 0xFFFFFFFF)}"
    bare = ":".join(f"{int(group, 16):x}" for group in groups)
    return [
        str(address),
        address.exploded,
        address.exploded.upper(),
        embedded,
        bare,
        f"{address}\n",
    ]


@given(st.integers(0, 2**32 - 1))
def test_every_spelling_of_an_ipv4_address_is_one_address(number):
    assert {parse_address(text) for text in _v4_spellings(number)} == {IPv4Address(number)}


@given(st.integers(0, 2**128 - 1))
def test_every_spelling_of_an_ipv6_address_is_one_address(number):
    assert len({parse_address(text) for text in _v6_spellings(number)}) == 1


@given(st.integers(0, 2**32 - 1), st.sampled_from(["0{}", "00{}", "{}.0", "{}%1", "0x{}"]))
def test_no_other_spelling_of_an_ipv4_address_is_read(number, spelling):
    text = spelling.format(IPv4Address(number))
    with pytest.raises(ValueError, match=re.escape(text)):
        parse_address(text)


def test_addresses_are_listed_in_numerical_order_and_v4_first():
    found = map(ip_address, ("fd00::2", "10.0.0.10", "fd00::1", "10.0.0.9"))
    assert listed(found) == "10.0.0.9, 10.0.0.10, fd00::1, fd00::2"
    assert listed([]) == ""

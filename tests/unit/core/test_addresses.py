# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from purelb.core.addresses import parse_range, parse_subnets


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

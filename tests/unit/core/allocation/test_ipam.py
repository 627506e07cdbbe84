# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import ip_address, ip_interface

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.allocation.ipam import Leased, listed_ranges, listing
from purelb.core.api import custom_resources
from purelb.core.model import ExternalSource, NetBoxSource, PoolType

NETBOX = {"netbox": {"url": "https://netbox.example.com/", "tenant": "purelb"}}
EXTERNAL = {"external": {"provider": "acme", "announce": "local"}}


def leased(text):
    one = ip_interface(text)
    return Leased(one.ip, one.network.prefixlen)


def group(spec, *addresses):
    meta = {"name": "elsewhere", "namespace": "purelb-system", "uid": "u"}
    status = {"addresses": list(addresses)}
    return custom_resources.service_group_of({"metadata": meta, "spec": spec, "status": status})


@pytest.mark.parametrize(
    ("entry", "expected", "prefixlen"),
    [
        ("10.1.1.5/24", "10.1.1.5-10.1.1.5", 24),
        ("fd10::5/64", "fd10::5-fd10::5", 64),
        ("10.1.1.5", "10.1.1.5-10.1.1.5", 32),
        ("fd10::5", "fd10::5-fd10::5", 128),
        ("10.1.1.0/30", "10.1.1.0-10.1.1.3", 30),
        ("fd10::/126", "fd10::-fd10::3", 126),
        ("10.1.1.5-10.1.1.9", "10.1.1.5-10.1.1.9", 32),
        ("fd10::5 - fd10::9", "fd10::5-fd10::9", 128),
        ("10.1.1.5-10.1.1.9/24", "10.1.1.5-10.1.1.9", 24),
        ("fd10::5-fd10::9/64", "fd10::5-fd10::9", 64),
    ],
)
def test_status_entry_is_a_range_with_a_mask(entry, expected, prefixlen):
    (found,) = listed_ranges([entry])
    assert (str(found), found.prefixlen) == (expected, prefixlen)


@pytest.mark.parametrize(
    "entry",
    ["", "plenty", "10.1.1.5/40", "10.1.1.9-10.1.1.5", "10.1.1.5-fd10::5", "10.1.1.5-10.1.1.9/40"],
)
def test_invalid_entries_are_skipped(entry):
    assert [str(r) for r in listed_ranges([entry, "10.1.1.5/24"])] == ["10.1.1.5-10.1.1.5"]


def test_neighbours_with_one_mask_are_listed_together():
    held = ["fd10::6/64", "10.1.1.7/24", "10.1.1.5/24", "fd10::5/64", "10.1.1.6/24", "10.1.1.8/32"]
    assert listing([*map(leased, held), Leased(ip_address("10.1.1.10"))]) == (
        "10.1.1.5-10.1.1.7/24",
        "10.1.1.8/32",
        "10.1.1.10",
        "fd10::5-fd10::6/64",
    )


@given(
    st.sets(
        st.tuples(
            st.sampled_from(["10.1.1.0", "fd10::"]), st.integers(0, 30), st.sampled_from([0, 8])
        )
    )
)
def test_listing_is_read_back(chosen):
    addresses = {ip_address(base) + offset: longer for base, offset, longer in chosen}
    held = [Leased(a, a.max_prefixlen - longer) for a, longer in addresses.items()]
    ranges = listed_ranges(listing(held))
    assert sum(r.size for r in ranges) == len(held)
    for one in held:
        (found,) = (r for r in ranges if one.address in r)
        assert found.prefixlen == one.prefixlen


@pytest.mark.parametrize(
    ("aggregation", "address", "expected"),
    [
        ("default", "10.1.1.5", 24),
        ("default", "10.1.1.6", None),
        ("/32", "10.1.1.5", 32),
        ("/20", "10.1.1.6", 20),
        ("/64", "10.1.1.6", 32),
        ("/64", "fd10::5", 64),
    ],
)
def test_a_netbox_group_gives_a_mask_that_it_asks_for_or_that_netbox_has(
    aggregation, address, expected
):
    spec = {"netbox": {**NETBOX["netbox"], "aggregation": aggregation}}
    read = group(spec, "10.1.1.5/24", "Reserved for PureLB")
    assert (read.pool_type, read.source.url, read.source.tenant) == (
        PoolType.REMOTE,
        "https://netbox.example.com",
        "purelb",
    )
    assert isinstance(read.source, NetBoxSource)
    assert read.prefixlen_of(ip_address(address)) == expected


@pytest.mark.parametrize("host", ["10.0.0.1", "[fd00::1]"], ids=["v4", "v6"])
@pytest.mark.parametrize(
    ("scheme", "allows", "is_refused"),
    [
        ("https", False, False),
        ("https", True, False),
        ("http", False, True),
        ("http", True, False),
        ("HTTP", False, True),
    ],
)
def test_the_token_is_sent_in_clear_only_where_the_group_allows_it(
    host, scheme, allows, is_refused
):
    spec = {"url": f"{scheme}://{host}:8000", "tenant": "purelb", "allowHTTP": allows}
    problem = group({"netbox": spec}).source.token_problem
    assert ("set spec.netbox.allowHTTP to true" in problem) is is_refused
    assert is_refused or problem == ""


@pytest.mark.parametrize("announce", ["local", "remote"])
def test_a_sidecar_says_nothing_of_masks(announce):
    read = group({"external": {"provider": "acme", "announce": announce}}, "10.1.1.5/24")
    assert read.pool_type is PoolType(announce)
    assert read.source == ExternalSource("acme", "/var/run/purelb/ipam.sock")
    assert read.range_of(ip_address("10.1.1.5")) is not None
    assert read.prefixlen_of(ip_address("10.1.1.5")) is None


def test_a_sidecars_socket_may_be_elsewhere():
    spec = {"external": {**EXTERNAL["external"], "socket": "/run/a.sock"}}
    assert group(spec).source.socket == "/run/a.sock"

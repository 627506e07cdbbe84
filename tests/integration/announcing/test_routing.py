# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The lab's router learns the addresses on kube-lb0 by BGP and distributes traffic over nodes."""

from __future__ import annotations

import json

import pytest

from tests.support.lab.cluster_queries import eventually

pytestmark = pytest.mark.timeout(60)
# Seconds until a route follows a change of an address; until it follows a cut cable.
LEARNED, CUT_OFF = 5.0, 15.0
DUMMY = "kube-lb0"


@pytest.fixture(scope="module")
def routed(lab):
    """The lab with BGP between its nodes and its router."""
    lab.start_routing()
    yield lab
    lab.stop_routing()


@pytest.fixture
def put(routed):
    """Adds an address to a node's dummy interface or removes it; removes all after the test."""
    on = set()

    def change(node, address, *, verb="add"):
        routed.run_in(node, ["ip", "addr", verb, address, "dev", DUMMY])
        (on.add if verb == "add" else on.discard)((node, address))

    yield change
    for node, address in tuple(on):
        change(node, address, verb="del")


def learned(lab, prefix, nodes, *, seconds=LEARNED):
    eventually(
        lambda: lab.next_hops(prefix) == nodes, f"route to {prefix} by {nodes}", seconds=seconds
    )


BOTH = pytest.mark.parametrize("address", ["10.100.0.7/32", "fd28:100::7/128"], ids=["v4", "v6"])


@pytest.mark.parametrize(
    ("address", "prefix"),
    [
        ("10.100.0.7/32", "10.100.0.7/32"),
        ("fd28:100::7/128", "fd28:100::7/128"),
        ("10.100.5.7/24", "10.100.5.0/24"),
        ("fd28:100:0:5::7/64", "fd28:100:0:5::/64"),
    ],
)
def test_router_has_each_node_with_the_prefix_as_next_hop(routed, put, address, prefix):
    put("n1", address)
    put("n2", address)
    learned(routed, prefix, {"n1", "n2"})
    put("n1", address, verb="del")
    learned(routed, prefix, {"n2"})
    put("n2", address, verb="del")
    learned(routed, prefix, set())


@BOTH
def test_client_reaches_the_address_by_the_router(routed, put, address):
    put("n1", address)
    put("n2", address)
    learned(routed, address, {"n1", "n2"})
    routed.run_in("client", ["ping", "-c1", "-W2", address.partition("/")[0]])


@BOTH
def test_node_cut_off_is_removed_as_next_hop(routed, put, address):
    put("n1", address)
    put("n2", address)
    learned(routed, address, {"n1", "n2"})
    routed.cut("n1")
    try:
        learned(routed, address, {"n2"}, seconds=CUT_OFF)
    finally:
        routed.mend("n1")
    learned(routed, address, {"n1", "n2"}, seconds=CUT_OFF)


@pytest.mark.parametrize(
    ("family", "address", "prefix"),
    [
        ("-4", "10.100.6.7/24", "10.100.6.0/24"),
        ("-6", "fd28:100:0:6::7/64", "fd28:100:0:6::/64"),
    ],
    ids=["v4", "v6"],
)
def test_node_advertises_no_other_interface(routed, put, family, address, prefix):
    put("n1", address)
    command = ["ip", "-json", family, "route", "show", "proto", "bgp"]

    def told():
        routes = json.loads(routed.run_in("router", command).stdout or "[]")
        return {route["dst"] for route in routes} == {prefix}

    eventually(told, f"route to {prefix} alone", seconds=LEARNED)

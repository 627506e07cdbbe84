# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The lab's router learns the addresses on kube-lb0 by BGP and distributes traffic over nodes."""

from __future__ import annotations

import json

import pytest

from tests.support.lab.cluster_queries import eventually, timed

pytestmark = [pytest.mark.timeout(60), pytest.mark.thorough]
DUMMY = "kube-lb0"
BOTH = ("10.100.0.7/32", "fd28:100::7/128")


@pytest.fixture(scope="module")
def routed(lab):
    """The lab with BGP between its nodes and its router."""
    lab.start_routing()
    yield lab
    lab.stop_routing()


@pytest.fixture
def put(routed):
    """Adds addresses to a node's dummy interface or removes them; removes all after the test."""
    on = set()

    def change(node, addresses, *, verb="add"):
        for address in addresses:
            routed.run_in(node, ["ip", "addr", verb, address, "dev", DUMMY])
            (on.add if verb == "add" else on.discard)((node, address))

    yield change
    for node, address in tuple(on):
        change(node, [address], verb="del")


@pytest.fixture
def wait_for_routes(routed, figure):
    """Waits until the router has exactly these nodes as next hops to each prefix."""

    def wait(prefixes, nodes):
        what = f"routes to {prefixes} by {sorted(nodes)}"
        seconds = timed(lambda: all(routed.next_hops(p) == nodes for p in prefixes), what)
        figure(f"{what} after {seconds:.2f} s")

    return wait


@pytest.mark.parametrize(
    ("addresses", "prefixes"),
    [
        (("10.100.0.7/32", "fd28:100::7/128"), ("10.100.0.7/32", "fd28:100::7/128")),
        (("10.100.5.7/24", "fd28:100:0:5::7/64"), ("10.100.5.0/24", "fd28:100:0:5::/64")),
    ],
    ids=["single", "whole"],
)
def test_router_has_each_node_with_the_prefix_as_next_hop(
    put, wait_for_routes, addresses, prefixes
):
    put("n1", addresses)
    put("n2", addresses)
    wait_for_routes(prefixes, {"n1", "n2"})
    put("n1", addresses, verb="del")
    wait_for_routes(prefixes, {"n2"})
    put("n2", addresses, verb="del")
    wait_for_routes(prefixes, set())


def test_client_reaches_the_addresses_by_the_router(routed, put, wait_for_routes):
    put("n1", BOTH)
    put("n2", BOTH)
    wait_for_routes(BOTH, {"n1", "n2"})
    for address in BOTH:
        routed.run_in("client", ["ping", "-c1", "-W2", address.partition("/")[0]])


def test_node_cut_off_is_removed_as_next_hop(routed, put, wait_for_routes):
    put("n1", BOTH)
    put("n2", BOTH)
    wait_for_routes(BOTH, {"n1", "n2"})
    routed.cut("n1")
    try:
        wait_for_routes(BOTH, {"n2"})
    finally:
        routed.mend("n1")
    wait_for_routes(BOTH, {"n1", "n2"})


def test_node_advertises_no_other_interface(routed, put):
    prefixes = {"-4": "10.100.6.0/24", "-6": "fd28:100:0:6::/64"}
    put("n1", ["10.100.6.7/24", "fd28:100:0:6::7/64"])

    def told(family):
        command = ["ip", "-json", family, "route", "show", "proto", "bgp"]
        routes = json.loads(routed.run_in("router", command).stdout or "[]")
        return {route["dst"] for route in routes}

    for family, prefix in prefixes.items():
        eventually(lambda f=family, p=prefix: told(f) == {p}, f"route to {prefix} alone")

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes whose provider gives them addresses otherwise: masks of one host, prefixes that change.

Each test checks addresses of both families and prints its figures.
"""

from __future__ import annotations

import time
from ipaddress import ip_network

import pytest

from labkit.probe.prober import Prober
from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import CRASH, LEASES, addresses_of, eventually, lease_info
from tests.support.lab.faults import (
    events_of,
    ip,
    longest_of,
    node_with_both_families,
    serve_addresses,
    wait_until_moved,
)
from tests.support.lab.lan_9 import NETS, lan_9, own_addresses

pytestmark = [pytest.mark.timeout(90), pytest.mark.safety]
SETTLED = 4.0
GROUP = "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups/lan9"
MASKS = [str(ip_network(net).prefixlen) for net in NETS]


@pytest.fixture
def there(cluster, make_service):
    """The annotations for the second segment, and addresses of Services there."""
    with lan_9(cluster) as annotations:
        yield annotations, serve_addresses(cluster, make_service, annotations=annotations)


def said(lab, node, annotation):
    meta = lab.api.get(f"{LEASES}/purelb-node-{node}")["metadata"]
    return {*meta["annotations"].get(annotation, "").split(",")} - {""}


def test_addresses_stay_and_move_in_the_subnets_of_on_link_routes(cluster, there, figure):
    """As hosters configure a node, and DHCPv6 with router advertisements."""
    _annotations, vips = there
    with Prober(cluster, *vips) as prober, record_holders(cluster, *vips) as holders:
        for vip in vips:
            prober.wait_for_answer(vip, after=0, seconds=15)
        start = time.monotonic()
        for node in cluster.nodes:
            for own, net, mask, whole in zip(
                own_addresses(cluster, node), NETS, MASKS, ("32", "128"), strict=True
            ):
                ip(
                    cluster,
                    node,
                    f"addr del {own}/{mask} dev eth9",
                    f"addr add {own}/{whole} dev eth9" + " nodad" * (":" in own),
                    f"route add {net} dev eth9" + " proto ra" * (":" in own),
                )
        time.sleep(SETTLED)
        gap = longest_of(lambda vip: prober.longest_gap(vip, since=start), vips)
        for node in cluster.nodes:
            assert said(cluster, node, "purelb.io/subnets") >= {*NETS}
        # For a moment on no node, where they went behind the new own address.
        assert all(len(set().union(*holders.sequence(vip))) == 1 for vip in vips)
        loser, lost = node_with_both_families(cluster, vips)
        cut = time.monotonic()
        ip(cluster, loser, "link set eth9 down")
        wait_until_moved(cluster, loser, lost, seconds=CRASH)
        moved = time.monotonic() - cut
    figure(f"without answer {gap:.2f} s; moved after {moved:.2f} s")
    assert gap < 1
    assert longest_of(holders.longest_doubled, vips) < 1


def reports(lab, uid):
    return events_of(lab, uid, "SubnetDeprecated", namespace="purelb-system")


def both(found):
    return len(found) == 2 and found


def lifetimes(lab, preferred):
    """Give the nodes' own addresses of the second segment this preferred lifetime.

    They are valid for ever: with `ip`, another lifetime can end the route to the subnet at once.
    """
    for node in lab.nodes:
        for own, mask in zip(own_addresses(lab, node), MASKS, strict=True):
            ip(
                lab,
                node,
                f"addr change {own}/{mask} dev eth9 valid_lft forever preferred_lft {preferred}",
            )


def test_addresses_stay_in_subnets_that_the_network_replaces(cluster, there, make_service, figure):
    annotations, vips = there
    uid = cluster.api.get(GROUP)["metadata"]["uid"]
    with Prober(cluster, *vips) as prober, record_holders(cluster, *vips) as holders:
        for vip in vips:
            prober.wait_for_answer(vip, after=0, seconds=15)
        start = time.monotonic()
        lifetimes(cluster, 0)
        events = eventually(lambda: both(reports(cluster, uid)), "an event for each range")
        reported = time.monotonic() - start
        path = make_service(annotations=annotations)
        refused = eventually(
            lambda: events_of(
                cluster, cluster.api.get(path)["metadata"]["uid"], "AllocationFailed"
            ),
            "refusal of a new Service",
        )
        codes = [finding["code"] for finding in lease_info(cluster.kubeconfig)["findings"]]
        time.sleep(SETTLED)
        gap = longest_of(lambda vip: prober.longest_gap(vip, since=start), vips)
    figure(f"reported after {reported:.2f} s; without answer {gap:.2f} s")
    assert gap < 1
    assert all(len(holders.sequence(vip)) == 1 for vip in vips)
    assert {event.get("count", 1) for event in events} == {1}
    assert refused[0]["message"].startswith("subnet_deprecated: ")
    assert codes.count("subnetDeprecated") == 2
    for node in cluster.nodes:
        assert said(cluster, node, "purelb.io/deprecated-subnets") == {*NETS}
    lifetimes(cluster, "forever")
    assert len(addresses_of(cluster, path)) == 2
    for node in cluster.nodes:
        eventually(
            lambda n=node: not said(cluster, n, "purelb.io/deprecated-subnets"), "Lease of the node"
        )

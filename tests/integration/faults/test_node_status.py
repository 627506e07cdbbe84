# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A kubelet that is not told its node's address takes one of a Service for it."""

from __future__ import annotations

import time

import pytest

from labkit.probe.prober import Prober
from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import LEASES, eventually
from tests.support.lab.faults import (
    events_of,
    longest_of,
    node_with_both_families,
    serve_addresses,
)

pytestmark = [pytest.mark.timeout(150), pytest.mark.safety]
# Seconds: more than a kubelet waits between two looks at its addresses.
LOOKS = 12.0


def listed(lab, node):
    status = lab.api.get(f"/api/v1/nodes/{node}")["status"]
    return {entry["address"] for entry in status["addresses"] if entry["type"] == "InternalIP"}


def said(lab, node):
    meta = lab.api.get(f"{LEASES}/purelb-node-{node}")["metadata"]
    return meta["annotations"].get("purelb.io/mistaken-addresses", "")


def mistaken(lab, uid):
    """What events say of addresses that others took for the node's own, by their names."""
    events = events_of(lab, uid, "NodeAddressMistaken")
    return {event["metadata"]["name"]: event["message"] for event in events}


def restart_kubelet(lab, node, *options):
    lab.kill(node, "kubelet")
    lab.start(node, "kubelet", *options)


@pytest.mark.parametrize(
    "node_ip",
    ["::", "0.0.0.0"],  # noqa: S104 - nothing listens there
    ids=["v6", "v4"],
)
def test_addresses_stay_where_they_are(cluster, make_service, node_ip, figure):
    vips = serve_addresses(cluster, make_service)
    node, own = node_with_both_families(cluster, vips)
    uid = cluster.api.get(f"/api/v1/nodes/{node}")["metadata"]["uid"]
    before, events = listed(cluster, node), mistaken(cluster, uid)
    with Prober(cluster, *vips) as prober, record_holders(cluster, *vips) as holders:
        for vip in vips:
            prober.wait_for_answer(vip, after=0, seconds=15)
        start = time.monotonic()
        try:
            restart_kubelet(cluster, node, f"--node-ip={node_ip}")
            eventually(lambda: len(listed(cluster, node)) == 1, "one address", seconds=60)
            time.sleep(LOOKS)
            (first,) = listed(cluster, node)
            # The kernel has IPv4 addresses of Services behind the node's own, and IPv6 before it.
            assert (first in own) == (node_ip == "::")
            assert said(cluster, node) == (f"{node}/{first}" if first in own else "")
            # The Node and its events stay when the test is repeated.
            texts = [text for name, text in mistaken(cluster, uid).items() if name not in events]
            assert len([text for text in texts if f"lists {first}," in text]) == (first in own)
        finally:
            restart_kubelet(cluster, node)
        eventually(lambda: listed(cluster, node) == before, "the node's own addresses", seconds=60)
        eventually(lambda: said(cluster, node) == "", "nothing said any more", seconds=10)
        gap = longest_of(lambda vip: prober.longest_gap(vip, since=start), vips)
    figure(f"listed {first}; client without answer {gap:.2f} s in {LOOKS:.0f} s")
    assert [holders.sequence(vip) for vip in own] == [[{node}]] * len(own)
    assert gap < 1

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes that shall not serve by their label, or cannot because their kube-proxy is dead."""

from __future__ import annotations

import time
from contextlib import contextmanager

import pytest

from purelb.core.names import EXCLUDE_LABEL
from tests.support.lab.cluster_queries import GRACEFUL, answers, eventually, lease_info
from tests.support.lab.faults import (
    events_of,
    holders_of,
    node_with_both_families,
    serve_addresses,
    wait_until_moved,
    wait_until_returned,
)

pytestmark = [pytest.mark.timeout(180), pytest.mark.safety]
# Seconds: four questions, 5 s apart, and what the last one takes.
FOUND = 30.0


def path_of(node):
    return f"/api/v1/nodes/{node}"


def label(lab, *nodes, value=""):
    for node in nodes:
        lab.api.merge_patch(path_of(node), {"metadata": {"labels": {EXCLUDE_LABEL: value}}})


@pytest.fixture
def unlabelled(cluster):
    yield
    label(cluster, *cluster.nodes, value=None)


@contextmanager
def dead_proxies(lab, *nodes):
    """End kube-proxy on nodes; its rules stay in their kernels."""
    try:
        for node in nodes:
            lab.kill(node, "kube-proxy")
        yield
    finally:
        for node in nodes:
            lab.start(node, "kube-proxy")


def codes(lab):
    return {(f["code"], f["object"]) for f in lease_info(lab.kubeconfig)["findings"]}


def standings(lab):
    return {lease["node"]: lease["standing"] for lease in lease_info(lab.kubeconfig)["leases"]}


@pytest.fixture(autouse=True)
def at_first(cluster):
    """All nodes are suited alike: what a test before did is over."""
    wanted = dict.fromkeys(cluster.nodes, "first")
    eventually(lambda: standings(cluster) == wanted, "nodes of the first standing", seconds=FOUND)


def news(lab, node, reason, text):
    """The event on a Node with this reason and text, once it is there."""
    uid = lab.api.get(path_of(node))["metadata"]["uid"]

    def found():
        return [e for e in events_of(lab, uid, reason) if text in e["message"]]

    return eventually(found, f"event {reason}")[-1]


@pytest.mark.usefixtures("unlabelled")
def test_the_label_moves_the_addresses_and_all_nodes_with_it_keep_them(cluster, make_service):
    vips = serve_addresses(cluster, make_service)
    node, own = node_with_both_families(cluster, vips)
    label(cluster, node)
    wait_until_moved(cluster, node, own, seconds=GRACEFUL)
    why = f"label {EXCLUDE_LABEL}"
    assert news(cluster, node, "AddressesDrained", why)["type"] == "Normal"
    expected = {n: "excluded" if n == node else "first" for n in cluster.nodes}
    assert standings(cluster) == expected
    label(cluster, *cluster.nodes)
    wait_until_returned(cluster, node, own, seconds=GRACEFUL)
    assert news(cluster, node, "AddressesNotDrained", why)["type"] == "Normal"


def test_a_dead_kube_proxy_gets_no_new_address_and_loses_what_it_has(cluster, make_service):
    vips = serve_addresses(cluster, make_service)
    node, own = node_with_both_families(cluster, vips)
    with dead_proxies(cluster, node):
        wait_until_moved(cluster, node, own, seconds=FOUND)
        assert news(cluster, node, "ServiceProxyDown", "kube-proxy")["type"] == "Warning"
        assert ("serviceProxyDown", f"node {node}") in codes(cluster)
        new = serve_addresses(cluster, make_service)
        for vip in (*new, *vips):
            eventually(lambda v=vip: answers(cluster, v), f"answer of {vip}")
        assert all(node not in on for on in holders_of(cluster, *new).values())
    wait_until_returned(cluster, node, own, seconds=FOUND)


def test_where_every_kube_proxy_is_dead_nothing_moves(cluster, make_service):
    vips = serve_addresses(cluster, make_service)
    node_with_both_families(cluster, vips)
    before = holders_of(cluster, *vips)
    with dead_proxies(cluster, *cluster.nodes):
        until = time.monotonic() + FOUND + 5
        while time.monotonic() < until:
            assert holders_of(cluster, *vips) == before
        assert not [code for code, _about in codes(cluster) if code == "serviceProxyDown"]
    eventually(lambda: answers(cluster, vips[0]), "answer")

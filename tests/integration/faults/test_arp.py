# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""All nodes answer ARP for the addresses of Services, as with kube-proxy in IPVS mode.

The stand-in is as kube-proxy makes it: an interface that is down on each node, with the address of
each Service, which kube-proxy adds when the Service has it.
"""

from __future__ import annotations

import contextlib
import threading
import time

import pytest

from labkit.api import ApiError
from labkit.net.stand_ins import Ipvs
from tests.support.lab.cluster_queries import (
    LEASES,
    answers,
    eventually,
    lease_info,
)
from tests.support.lab.faults import events_of, metric_of, without_fence

pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]
GROUPS = "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups"
SERVICES = "/api/v1/namespaces/default/services"
# Twice as many seconds as until each new Service had another address, before.
LONG = 8.0
DROPS = "purelb_lbnodeagent_fence_dropped_frames_total"


@pytest.fixture
def ipvs(cluster):
    """All nodes have all IPv4 addresses of Services on kube-ipvs0."""
    if "ipvs" in cluster.topology.variants:
        yield
        return
    stand_in, ends = Ipvs(cluster.topology.nodes), threading.Event()

    def follow():
        while not ends.wait(0.1):
            with contextlib.suppress(OSError, ApiError):
                stand_in.follow(cluster.api.items(SERVICES))

    thread = threading.Thread(target=follow)
    thread.start()
    yield
    ends.set()
    thread.join()
    stand_in.close()


def condition(lab):
    status = lab.api.get(f"{GROUPS}/default")["status"]
    return {c["type"]: c for c in status["conditions"]}["AddressesSetAside"]["status"]


def test_the_fence_lets_only_the_holder_answer(cluster, ipvs, make_service, figure):
    path = make_service()
    vip4, _vip6 = eventually(lambda: given(cluster, path), "addresses")
    uid = cluster.api.get(path)["metadata"]["uid"]
    eventually(lambda: answers(cluster, vip4), "answer over IPv4")
    time.sleep(LONG)
    assert events_of(cluster, uid, "AddressConflict") == []
    assert answering(cluster) == ""
    # All have the address by now; the first request may have come before.
    cluster.run_in("client", ["ip", "neighbor", "flush", "to", vip4])
    eventually(lambda: answers(cluster, vip4), "answer over IPv4")
    annotations = cluster.api.get(path)["metadata"]["annotations"]
    node = annotations["purelb.io/announcing-IPv4"].partition(",")[0]
    drops = {n: metric_of(cluster, n, DROPS) for n in cluster.nodes if n != node}
    figure(f"frames dropped: {drops}")
    assert all(drops.values())


@pytest.mark.thorough
def test_without_the_fence_services_keep_their_addresses_and_the_nodes_are_named(
    cluster, ipvs, make_service, figure
):
    with without_fence(cluster):
        check_that_nodes_are_named(cluster, make_service(), figure)


def check_that_nodes_are_named(cluster, path, figure):
    vip4, vip6 = eventually(lambda: given(cluster, path), "addresses")
    uid = cluster.api.get(path)["metadata"]["uid"]
    (found,) = eventually(lambda: events_of(cluster, uid, "AddressConflict"), "event", seconds=LONG)
    assert f"answers for {vip4}, too" in found["message"]
    assert "strictARP" in found["message"]
    named = eventually(lambda: answering(cluster), "nodes in a Lease", seconds=LONG)
    assert set(named.split(",")) < set(cluster.nodes)
    findings = eventually(
        lambda: [
            f for f in lease_info(cluster.kubeconfig)["findings"] if f["code"] == "nodeAnswers"
        ],
        "finding",
    )
    assert all("strictARP" in f["remediation"] for f in findings)
    eventually(lambda: answers(cluster, vip4), "answer over IPv4")
    assert given(cluster, path) == [vip4, vip6]
    assert condition(cluster) == "False"
    figure(f"{vip4} stayed; named {named}")


def given(lab, path):
    """The addresses of a Service, which all nodes have here."""
    status = lab.api.get(path)["status"]["loadBalancer"]
    return [entry["ip"] for entry in status.get("ingress", ())]


def answering(lab):
    """What a Lease says of nodes that answer for another one."""
    notes = [lease["metadata"].get("annotations", {}) for lease in lab.api.items(LEASES)]
    return next(
        (n["purelb.io/answering-nodes"] for n in notes if "purelb.io/answering-nodes" in n), ""
    )

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A thousand Services are created and deleted while the leading allocator is killed repeatedly.

The recorded objects must show that no address was ever in two Services, that none is lost, and that
the allocator's metric is correct.
"""

from __future__ import annotations

import itertools
import random
import signal
import threading
import time
from collections import defaultdict
from contextlib import contextmanager

import kubernetes
import pytest
import urllib3

from labkit.api import ApiError
from labkit.host.processes import Process
from tests.support.lab.cluster_queries import AGENTS, allocator_metric, eventually, ingress, leader

WRITERS, EACH = 4, 250
# Seconds that each leader may work; the next one waits until the lock of 15 s expires.
LEADS_SECONDS = 4.0
GROUP = "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups/soak"
# In no node's subnet, as announcing is not under test.
POOLS = {
    "v4pool": {"pool": "10.77.0.0/21", "subnet": "10.77.0.0/16"},
    "v6pool": {"pool": "fd77::/64", "subnet": "fd77::/64"},
}
pytestmark = [pytest.mark.timeout(420), pytest.mark.safety, pytest.mark.thorough]


@pytest.fixture
def group(cluster):
    body = {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "soak", "namespace": "purelb-system"},
        "spec": {"local": POOLS},
    }
    cluster.api.create(body)
    yield
    for service in soaked(cluster):
        cluster.api.delete(path_of(service["metadata"]["name"]))
    cluster.api.delete(GROUP)


def path_of(name):
    return f"/api/v1/namespaces/default/services/{name}"


def soaked(lab):
    return lab.api.items("/api/v1/namespaces/default/services", labelSelector="soak=yes")


def service(name):
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name,
            "namespace": "default",
            # kube-proxy ignores them.
            "labels": {"soak": "yes", "service.kubernetes.io/service-proxy-name": "none"},
            "annotations": {"purelb.io/service-group": "soak"},
        },
        "spec": {
            "type": "LoadBalancer",
            "allocateLoadBalancerNodePorts": False,
            "ipFamilyPolicy": "RequireDualStack",
            "ports": [{"port": 80}],
        },
    }


class Writer(threading.Thread):
    """Creates Services and deletes some of them in a random order of its own."""

    def __init__(self, lab, number):
        super().__init__(daemon=True)
        self.error = None
        self._lab = lab
        self._number = number

    def run(self):
        try:
            self._write(random.Random(self._number))  # noqa: S311 - the same in each run
        except (ApiError, OSError) as error:
            self.error = error

    def _write(self, dice):
        there = []
        for i in range(EACH):
            name = f"soak-{self._number}-{i}"
            self._lab.api.create(service(name))
            there.append(name)
            if dice.random() < 0.5:
                self._lab.api.delete(path_of(there.pop(dice.randrange(len(there)))))


@contextmanager
def leaders_dying(lab):
    """Kill each leader after some seconds; yield the list of killed leaders."""
    killed, stop = [], threading.Event()

    def work():
        while not stop.wait(LEADS_SECONDS):
            pod = leader(lab)
            if not pod or pod["metadata"]["name"] in killed:
                continue
            node, name = pod["spec"]["nodeName"], pod["metadata"]["name"]
            pids = {c.pid for c in lab.containers(node) if (c.pod, c.name) == (name, "allocator")}
            process = Process.of(pids.pop()) if pids else None
            if process is None:
                continue  # it ended by itself, and the lock names it until the next one leads
            process.send(signal.SIGKILL)
            killed.append(name)
            # A new pod, because the kubelet delays frequent restarts for minutes.
            lab.api.delete(f"{AGENTS}/{name}", gracePeriodSeconds=0)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        stop.set()
        thread.join()


class Holders(threading.Thread):
    """Watches each version of each Service, in the API server's order."""

    def __init__(self, lab):
        super().__init__(daemon=True)
        self.twice = []
        self.versions = 0
        self._is_stopping = False
        self._client = kubernetes.config.new_client_from_config(str(lab.kubeconfig))
        self._watch = kubernetes.watch.Watch()
        self._had = defaultdict(set)
        self._holders = {}

    def run(self):
        listing = kubernetes.client.CoreV1Api(self._client).list_namespaced_service
        try:
            for event in self._watch.stream(listing, "default", label_selector="soak=yes"):
                self.versions += 1
                self._take(event["type"], event["raw_object"])
        except urllib3.exceptions.ProtocolError:
            # The stream was closed by `stop`; any other end is an error.
            if not self._is_stopping:
                raise

    def stop(self):
        self._is_stopping = True
        self._watch.stop()
        self._client.close()
        self.join(timeout=10)

    def _take(self, kind, item):
        name = item["metadata"]["name"]
        has = set() if kind == "DELETED" else set(ingress(item))
        for address in self._had[name] - has:
            del self._holders[address]
        for address in has - self._had[name]:
            if address in self._holders:
                self.twice.append((address, self._holders[address], name))
            self._holders[address] = name
        self._had[name] = has


@pytest.mark.expects_errors("leadershipLost")
def test_no_address_is_allocated_twice_or_lost(cluster, group, figure):
    began, holders = time.monotonic(), Holders(cluster)
    holders.start()
    with leaders_dying(cluster) as killed:
        writers = [Writer(cluster, number) for number in range(WRITERS)]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [writer.error for writer in writers] == [None] * WRITERS
        eventually(
            lambda: all(len(ingress(s)) == 2 for s in soaked(cluster)),
            "addresses for all",
            seconds=120,
        )
    took = time.monotonic() - began
    holders.stop()
    services = soaked(cluster)
    given = list(itertools.chain(*map(ingress, services)))
    figure(
        f"{WRITERS * EACH} Services made, {len(services)} left, in {took:.0f} s; leader killed "
        f"{len(killed)} times; {len(given)} addresses, {holders.versions} versions seen, "
        f"{len(holders.twice)} of them with an address of another Service"
    )
    assert killed
    assert holders.versions > WRITERS * EACH
    assert holders.twice == []
    assert len(given) == len(set(given)) == 2 * len(services)
    for family, version in (("IPv4", 4), ("IPv6", 6)):
        eventually(
            lambda f=family: cluster.api.get(GROUP)["status"][f"allocated{f}"] == len(services),
            f"count of IPv{version}",
            seconds=40,
        )
    series = 'purelb_address_pool_addresses_in_use{pool="soak"}'
    eventually(lambda: allocator_metric(cluster, series) == len(given), "metric", seconds=40)

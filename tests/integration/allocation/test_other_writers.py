# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Other programs and tools that write Services: what they replace, overwrite, and leave behind.

Each test is for both families.
"""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest

from labkit.api import ApiError
from tests.support.lab.cluster_queries import eventually, ingress, lease_info, leftovers
from tests.support.lab.grants import EVENTS, both, entry, pools, wait_for_addresses, wait_for_event

pytestmark = pytest.mark.timeout(120)
OURS = ("purelb.io/allocated-", "purelb.io/pool-type", "purelb.io/announcing-")
# What k3s's servicelb writes: the addresses of the nodes.
NODES = ("172.28.1.11", "fd28:0:0:1::11")
FINALIZER = "example.com/hold"


def replaced(cluster, path, **spec):
    """Replace a Service by its owner's manifest, as `kubectl replace` does."""

    def put():
        body = cluster.api.get(path)
        meta = {name: body["metadata"][name] for name in ("name", "namespace", "resourceVersion")}
        try:
            # The answer has what the request had, and the status as it is stored.
            return cluster.api.call("PUT", path, {**body, "metadata": meta, **spec})
        except ApiError as error:
            if error.status != 409:
                raise
            return None

    return eventually(put, "a replacement")


def marks(cluster, path):
    annotations = cluster.api.get(path)["metadata"].get("annotations", {})
    return [name for name in annotations if name.startswith(OURS)]


def events(cluster, path, reason):
    uid = cluster.api.get(path)["metadata"]["uid"]
    selector = f"involvedObject.uid={uid},reason={reason}"
    return cluster.api.items(EVENTS.format("default"), fieldSelector=selector)


@contextmanager
def undoing(cluster, path, part, patch, is_undone):
    """Write to a Service whenever it is not as another program wants it; yields its writes."""
    ended, writes = threading.Event(), []

    def work():
        while not ended.wait(0.02):
            if not is_undone(cluster.api.get(path)):
                writes.append(time.monotonic())
                query = f"{path}{part}?fieldManager=servicelb"
                kind = "application/merge-patch+json"
                cluster.api.call("PATCH", query, patch, kind=kind)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield writes
    finally:
        ended.set()
        thread.join()


class TestReplaced:
    @pytest.fixture
    def kept(self, cluster, make_group, make_service):
        """A Service of the namespace's only group, and its addresses; then another one serves."""
        group = make_group(pools(entry(100, 105)), namespaces=["default"])
        path = make_service()
        wait_for_addresses(cluster, path, *both(100))
        eventually(lambda: len(events(cluster, path, "AnnouncingLocal")) == 2, "announcing")
        make_group(pools(entry(110, 115)), namespaces=["default"], namespaceDefault=True)
        return group, path

    def test_it_keeps_its_addresses_and_gets_its_annotations_back(self, cluster, kept):
        group, path = kept
        for _time in range(3):
            answer = replaced(cluster, path)
            assert not answer["metadata"].get("annotations")
            assert ingress(answer) == list(both(100))
            eventually(lambda: len(marks(cluster, path)) == 5, "all annotations")
            body = cluster.api.get(path)
            assert ingress(body) == list(both(100))
            assert body["metadata"]["annotations"]["purelb.io/allocated-from"] == group
        assert events(cluster, path, "Withdrawn") == []

    def test_of_another_type_it_keeps_nothing(self, cluster, kept):
        _group, path = kept
        spec = cluster.api.get(path)["spec"]
        dropped = ("type", "loadBalancerClass", "allocateLoadBalancerNodePorts")
        other = {name: value for name, value in spec.items() if name not in dropped}
        other = {k: v for k, v in other.items() if not k.startswith("external")}
        ports = [{"port": 80, "targetPort": 8080}]
        replaced(cluster, path, spec={**other, "type": "ClusterIP", "ports": ports})
        wait_for_addresses(cluster, path)
        eventually(lambda: not leftovers(cluster), "withdrawal")
        assert marks(cluster, path) == []


class TestSecondController:
    def test_it_is_answered_ever_less_and_named_and_others_do_not_wait(
        self, cluster, make_group, ask
    ):
        group = make_group(pools(entry(100, 105)))
        path = ask(group)
        wait_for_addresses(cluster, path, *both(100))
        entries = [{"ip": NODES[0]}, {"ip": NODES[1], "ipMode": "Proxy"}]
        theirs = {"status": {"loadBalancer": {"ingress": entries}}}
        with undoing(
            cluster, path, "/status", theirs, lambda body: ingress(body) == list(NODES)
        ) as writes:
            message = wait_for_event(cluster, path, "ServiceDisputed", "servicelb writes")
            assert ", ".join(NODES) in message
            time.sleep(10)
            # Ours are after 0, 1, 3 and 7 s.
            assert len(writes) <= 6
            began = time.monotonic()
            wait_for_addresses(cluster, ask(group), *both(101))
            assert time.monotonic() - began < 3
            findings = lease_info(cluster.kubeconfig)["findings"]
            (found,) = [f for f in findings if f["code"] == "serviceDisputed"]
            assert found["object"] == f"Service default/{path.rpartition('/')[2]}"
            assert "servicelb writes" in found["message"]
        assert len(events(cluster, path, "ServiceDisputed")) == 1
        # It is switched off: what it left goes away with the next correction.
        eventually(
            lambda: ingress(cluster.api.get(path)) == list(both(100)), "our addresses", seconds=40
        )

    def test_a_tool_that_sets_the_traffic_policy_again_is_answered_ever_less(
        self, cluster, make_group, ask
    ):
        path = ask(make_group(pools(entry(100, 105))))
        wait_for_addresses(cluster, path, *both(100))
        local = {"spec": {"externalTrafficPolicy": "Local"}}
        with undoing(
            cluster, path, "", local, lambda b: b["spec"]["externalTrafficPolicy"] == "Local"
        ) as writes:
            wait_for_event(cluster, path, "ServiceDisputed", "servicelb sets externalTrafficPolicy")
            time.sleep(8)
            assert len(writes) <= 6
        assert ingress(cluster.api.get(path)) == list(both(100))


class TestDeleted:
    @pytest.fixture
    def hold(self, cluster):
        """Gives a Service a finalizer of another program, and deletes it."""
        held = []

        def hold(path):
            held.append(path)
            cluster.api.merge_patch(path, {"metadata": {"finalizers": [FINALIZER]}})
            cluster.api.delete(path)
            assert cluster.api.get(path)["metadata"]["deletionTimestamp"]

        yield hold
        for path in held:
            cluster.api.merge_patch(path, {"metadata": {"finalizers": None}})

    def test_its_addresses_are_free_although_a_finalizer_keeps_it(
        self, cluster, make_group, ask, hold
    ):
        group = make_group(pools(entry(100, 100)))
        path = ask(group)
        wait_for_addresses(cluster, path, *both(100))
        hold(path)
        wait_for_addresses(cluster, path)
        wait_for_event(cluster, path, "AddressReleased", both(100)[0])
        eventually(lambda: not leftovers(cluster), "withdrawal")
        assert marks(cluster, path) == []
        wait_for_addresses(cluster, ask(group), *both(100))

    def test_it_gets_no_address_any_more(self, cluster, make_group, ask, hold):
        group = make_group(pools(entry(100, 101)))
        waiting = ask("not-yet")
        wait_for_event(cluster, waiting, "AllocationFailed", "not-yet")
        hold(waiting)
        named = {"metadata": {"annotations": {"purelb.io/service-group": group}}}
        cluster.api.merge_patch(waiting, named)
        wait_for_addresses(cluster, ask(group), *both(100))
        assert ingress(cluster.api.get(waiting)) == []


def test_what_another_load_balancer_wrote_stays_with_the_service_that_is_given_to_it(
    cluster, make_group, ask
):
    path = ask(make_group(pools(entry(100, 105))))
    wait_for_addresses(cluster, path, *both(100))
    # A class can be set only together with the type.
    cluster.api.merge_patch(path, {"spec": {"type": "ClusterIP"}})
    wait_for_addresses(cluster, path)
    other = {"type": "LoadBalancer", "loadBalancerClass": "example.com/other"}
    cluster.api.merge_patch(path, {"spec": other})
    theirs = {"status": {"loadBalancer": {"ingress": [{"hostname": "lb.example.com"}]}}}
    cluster.api.merge_patch(f"{path}/status", theirs)
    eventually(lambda: marks(cluster, path) == [], "no annotation of ours")
    time.sleep(1)
    assert cluster.api.get(path)["status"]["loadBalancer"]["ingress"] == [
        {"hostname": "lb.example.com"}
    ]

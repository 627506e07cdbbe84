# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A Service gets its addresses, answers on them and releases them."""

from __future__ import annotations

import threading

import pytest

from labkit.probe.addresses import nodes_with
from tests.support.lab.cluster_queries import (
    AGENTS,
    address_info,
    addresses_of,
    allocator_pods,
    answers,
    eventually,
    fetch,
    holder,
    ingress,
    leader,
    timed,
)

pytestmark = pytest.mark.timeout(90)
EVENTS = "/api/v1/namespaces/default/events"


def by_family(addresses):
    """Return the addresses of a Service by family, of which it has one each."""
    vip4, vip6 = sorted(addresses, key=lambda vip: ":" in vip)
    assert ":" not in vip4
    assert ":" in vip6
    return {4: vip4, 6: vip6}


def test_dual_stack_service_answers_on_both_addresses(cluster, make_service):
    for vip in by_family(addresses_of(cluster, make_service())).values():
        # kube-proxy may not know a new address immediately.
        eventually(lambda v=vip: answers(cluster, v), f"answer from {vip}")
        assert fetch(cluster, vip).startswith("web-")


def test_exactly_one_node_has_each_address_and_is_in_the_annotation(cluster, make_service):
    path = make_service()
    for family, vip in by_family(addresses_of(cluster, path)).items():
        annotation = f"purelb.io/announcing-IPv{family}"
        entry = f"{holder(cluster, vip)},eth0,{vip}"
        cluster.api.wait(
            path,
            lambda s, a=annotation, e=entry: s["metadata"]["annotations"].get(a) == e,
            what=annotation,
        )


def test_addresses_stand_alone_and_have_a_limited_lifetime(cluster, make_service):
    for family, vip in by_family(addresses_of(cluster, make_service())).items():
        info = address_info(cluster, holder(cluster, vip), vip)
        assert 0 < info["valid_life_time"] <= 40
        assert info.get("noprefixroute")
        assert info["prefixlen"] == (32 if family == 4 else 128)


def test_addresses_of_deleted_service_are_removed(cluster, make_service, figure):
    path = make_service()
    vips = by_family(addresses_of(cluster, path)).values()
    cluster.api.delete(path)
    seconds = timed(lambda: not any(nodes_with(cluster, vip) for vip in vips), "withdrawal")
    figure(f"withdrawn after {seconds:.2f} s")


def test_single_stack_service_gets_one_address_of_its_family(cluster, make_service):
    for family in (4, 6):
        path = make_service("SingleStack", ipFamilies=[f"IPv{family}"])
        (vip,) = addresses_of(cluster, path, count=1)
        assert (":" in vip) == (family == 6)
        eventually(lambda v=vip: answers(cluster, v), f"answer from {vip}")


def test_released_address_is_allocated_again(cluster, make_service):
    first = make_service()
    addresses = addresses_of(cluster, first)
    cluster.api.delete(first)
    eventually(lambda: not any(nodes_with(cluster, vip) for vip in addresses), "withdrawal")
    assert addresses_of(cluster, make_service()) == addresses


def test_services_created_concurrently_get_different_addresses(cluster, make_service):
    paths = []
    writers = [
        threading.Thread(target=lambda: paths.append(make_service())) for _number in range(15)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    given = [vip for path in paths for vip in addresses_of(cluster, path)]
    assert len(given) == 30
    assert len(set(given)) == 30


def test_allocator_metric_counts_addresses_in_use(cluster, make_service, figure):
    paths = [make_service() for _number in range(5)]
    for path in paths:
        addresses_of(cluster, path)
    for path in paths[:3]:
        cluster.api.delete(path)
    services = cluster.api.items("/api/v1/services")
    had = sum(len(ingress(s)) for s in services if s["spec"]["type"] == "LoadBalancer")
    pod = eventually(lambda: leader(cluster), "leader")
    url = f"http://{pod['status']['podIP']}:7472/metrics"
    series = 'purelb_address_pool_addresses_in_use{pool="default"}'

    def counted():
        text = cluster.run_in(pod["spec"]["nodeName"], ["curl", "-sS", url]).stdout
        (row,) = [line for line in text.splitlines() if line.startswith(series)]
        return float(row.rpartition(" ")[2]) == had

    figure(f"counted after {timed(counted, f'{had} addresses in use'):.2f} s")


def test_restarted_allocator_does_not_allocate_used_addresses(cluster, make_service):
    before = addresses_of(cluster, make_service())
    for pod in allocator_pods(cluster):
        cluster.api.delete(f"{AGENTS}/{pod['metadata']['name']}")
    after = addresses_of(cluster, make_service())
    assert not set(before) & set(after)


def test_service_of_another_class_is_ignored(cluster, make_service):
    theirs = make_service(loadBalancerClass="example.com/other")
    ours = make_service(loadBalancerClass="purelb.io/purelb-v2")
    addresses_of(cluster, ours)
    assert ingress(cluster.api.get(theirs)) == []


def test_refusal_creates_an_event_with_the_remedy(cluster, make_service):
    path = make_service(annotations={"purelb.io/service-group": "blue"})
    uid = cluster.api.get(path)["metadata"]["uid"]
    about = f"involvedObject.uid={uid},reason=AllocationFailed"
    (event,) = eventually(lambda: cluster.api.items(EVENTS, fieldSelector=about), "event")
    assert "ServiceGroup blue does not exist (unknown pool): create it" in event["message"]
    assert ingress(cluster.api.get(path)) == []


def test_refused_service_is_served_once_its_group_exists(cluster, make_service):
    path = make_service("SingleStack", annotations={"purelb.io/service-group": "late"})
    pools = {"v4pool": {"pool": "172.28.1.215/32", "subnet": "172.28.1.0/24"}}
    group = {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "late", "namespace": "purelb-system"},
        "spec": {"local": pools},
    }
    cluster.api.apply(group)
    try:
        assert addresses_of(cluster, path, count=1) == ["172.28.1.215"]
    finally:
        cluster.api.delete(path)
        cluster.api.delete(cluster.api.path_of(group))

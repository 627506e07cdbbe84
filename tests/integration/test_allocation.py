# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What Services get, keep and lose while they and their ServiceGroups change."""

from __future__ import annotations

import itertools

import pytest

from watching import allocator_metric, eventually, ingress

GROUPS = "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases"
EVENTS = "/api/v1/namespaces/{}/events"
# By family: the policy's field, the text before a host's number, and the subnet of the nodes.
V4 = ("IPv4", "172.28.1.", "172.28.1.0/24")
V6 = ("IPv6", "fd28:0:0:1::", "fd28:0:0:1::/64")
FAMILIES = [pytest.param(V4, id="v4"), pytest.param(V6, id="v6")]
pytestmark = pytest.mark.timeout(60)
_names = itertools.count(1)


def span(family, first, last):
    """A pool's entry: hosts first to last, as decimal digits in IPv6, too."""
    _name, start, subnet = family
    return {"pool": f"{start}{first}-{start}{last}", "subnet": subnet}


def elsewhere(family, number, first, last):
    """An entry in a subnet that no node has."""
    start = f"10.9.{number}." if family is V4 else f"fd99:{number}::"
    subnet = f"{start}0/24" if family is V4 else f"{start}/64"
    return {"pool": f"{start}{first}-{start}{last}", "subnet": subnet}


def pools(family, *entries):
    return {f"v{family[0][-1]}pools": list(entries)}


@pytest.fixture
def make_group(cluster):
    """Create a ServiceGroup; returns its name. Deleted after the test."""
    made = []

    def make(source, *, kind="local", **spec):
        name = f"g{next(_names)}"
        body = {
            "apiVersion": "purelb.io/v2",
            "kind": "ServiceGroup",
            "metadata": {"name": name, "namespace": "purelb-system"},
            "spec": {kind: source, **spec},
        }
        made.append(name)
        cluster.api.create(body)
        return name

    yield make
    for name in made:
        cluster.api.delete(f"{GROUPS}/{name}")


@pytest.fixture
def ask(cluster, make_service):
    """Create a Service of one family that names a group; returns its path."""

    def make(family, group, **more):
        annotations = {"purelb.io/service-group": group, **more.pop("annotations", {})}
        return make_service("SingleStack", annotations=annotations, ipFamilies=[family[0]], **more)

    return make


def has(cluster, path, *addresses):
    """Wait until the Service has exactly these addresses."""
    eventually(lambda: ingress(cluster.api.get(path)) == list(addresses), f"{addresses} on {path}")


def event(cluster, path_or_name, reason, words):
    """Wait for an event about an object whose message has these words."""
    name = path_or_name.rpartition("/")[2]
    namespace = "default" if "/services/" in path_or_name else "purelb-system"

    def found():
        events = cluster.api.items(
            EVENTS.format(namespace), fieldSelector=f"involvedObject.name={name},reason={reason}"
        )
        return [e["message"] for e in events if words in e["message"]]

    return eventually(found, f"event {reason} about {name} with {words!r}")[0]


def status_of(cluster, group):
    return cluster.api.get(f"{GROUPS}/{group}").get("status", {})


def condition(cluster, group, kind):
    conditions = status_of(cluster, group).get("conditions", [])
    found = [c for c in conditions if c["type"] == kind]
    return found[0] if found else {}


def address(family, number):
    return f"{family[1]}{number}"


@pytest.mark.parametrize("family", FAMILIES)
class TestSpecificAddresses:
    def test_by_annotation_and_the_first_free_one_else(self, cluster, make_group, ask, family):
        group = make_group(pools(family, span(family, 100, 105)))
        wanted = {"purelb.io/addresses": address(family, 103)}
        has(cluster, ask(family, group, annotations=wanted), address(family, 103))
        has(cluster, ask(family, group), address(family, 100))

    def test_by_the_spec(self, cluster, make_group, ask, family):
        group = make_group(pools(family, span(family, 100, 105)))
        path = ask(family, group, loadBalancerIP=address(family, 104))
        has(cluster, path, address(family, 104))

    def test_a_change_moves_the_service(self, cluster, make_group, ask, family):
        group = make_group(pools(family, span(family, 100, 105)))
        path = ask(family, group)
        has(cluster, path, address(family, 100))
        wanted = {"purelb.io/addresses": address(family, 105)}
        cluster.api.merge_patch(path, {"metadata": {"annotations": wanted}})
        has(cluster, path, address(family, 105))

    @pytest.mark.parametrize(
        ("wanted", "words"),
        [("{}99", "unknown_pool: "), ("{}100", "sharing_key_conflict: "), ("x{}", "is no IP")],
        ids=["outside", "taken", "garbage"],
    )
    def test_a_refusal_says_why(self, cluster, make_group, ask, family, wanted, words):
        group = make_group(pools(family, span(family, 100, 105)))
        has(cluster, ask(family, group), address(family, 100))
        annotations = {"purelb.io/addresses": wanted.format(family[1])}
        path = ask(family, group, annotations=annotations)
        event(cluster, path, "AllocationFailed", words)
        assert ingress(cluster.api.get(path)) == []


@pytest.mark.parametrize("family", FAMILIES)
class TestSharing:
    def share(self, ask, family, group, port):
        return ask(
            family,
            group,
            annotations={"purelb.io/allow-shared-ip": "x"},
            ports=[{"port": port, "targetPort": 8080}],
        )

    def test_services_with_one_key_share_unless_their_ports_clash(
        self, cluster, make_group, ask, family
    ):
        group = make_group(pools(family, span(family, 100, 105)))
        has(cluster, self.share(ask, family, group, 80), address(family, 100))
        has(cluster, self.share(ask, family, group, 81), address(family, 100))
        has(cluster, self.share(ask, family, group, 80), address(family, 101))

    def test_the_last_one_gives_it_back(self, cluster, make_group, ask, family):
        group = make_group(pools(family, span(family, 100, 100)))
        paths = [self.share(ask, family, group, port) for port in (80, 81)]
        for path in paths:
            has(cluster, path, address(family, 100))
        stranger = ask(family, group)
        event(cluster, stranger, "AllocationFailed", "no free")
        cluster.api.delete(paths[0])
        has(cluster, paths[1], address(family, 100))
        cluster.api.delete(paths[1])
        has(cluster, stranger, address(family, 100))


@pytest.mark.parametrize("family", FAMILIES)
class TestMultiPool:
    def test_one_of_each_range_with_nodes_and_of_others_when_they_get_one(
        self, cluster, make_group, ask, family
    ):
        number = next(_names)
        far = elsewhere(family, number, 1, 9)
        group = make_group(
            {**pools(family, span(family, 100, 105), far), "multiPool": True},
        )
        path = ask(family, group)
        has(cluster, path, address(family, 100))
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": "purelb-node-faraway",
                "namespace": "purelb-system",
                "annotations": {"purelb.io/subnets": far["subnet"], "purelb.io/instance": "x"},
            },
            "spec": {
                "holderIdentity": "faraway",
                "leaseDurationSeconds": 3600,
                "renewTime": "2099-01-01T00:00:00.000000Z",
            },
        }
        cluster.api.create(lease)
        try:
            has(cluster, path, address(family, 100), far["pool"].partition("-")[0])
        finally:
            cluster.api.delete(f"{LEASES}/purelb-node-faraway")

    def test_the_annotation_overrides_the_group(self, cluster, make_group, ask, family):
        ranges = span(family, 100, 102), span(family, 110, 112)
        group = make_group({**pools(family, *ranges), "multiPool": True})
        both = address(family, 100), address(family, 110)
        has(cluster, ask(family, group), *both)
        no = {"purelb.io/multi-pool": "false"}
        has(cluster, ask(family, group, annotations=no), address(family, 101))
        plain = make_group(pools(family, span(family, 120, 121), span(family, 130, 131)))
        yes = {"purelb.io/multi-pool": "true"}
        path = ask(family, plain, annotations=yes)
        has(cluster, path, address(family, 120), address(family, 130))

    def test_balanced_ranges_take_turns(self, cluster, make_group, ask, family):
        ranges = span(family, 100, 102), span(family, 110, 112)
        group = make_group({**pools(family, *ranges), "balancePools": True})
        for number in (100, 110, 101, 111):
            has(cluster, ask(family, group), address(family, number))


@pytest.mark.parametrize("family", FAMILIES)
class TestGroupsThatChange:
    def test_an_address_outside_a_shrunken_pool_is_kept_until_reevaluated(
        self, cluster, make_group, ask, family
    ):
        group = make_group(pools(family, span(family, 100, 105)))
        path = ask(family, group)
        has(cluster, path, address(family, 100))
        shrunk = {"spec": {"local": pools(family, span(family, 103, 105))}}
        cluster.api.merge_patch(f"{GROUPS}/{group}", shrunk)
        event(cluster, path, "AddressOutsidePool", "put the range back")
        has(cluster, path, address(family, 100))
        kept = eventually(
            lambda: (
                condition(cluster, group, "AddressesOutsidePool").get("status") == "True"
                and condition(cluster, group, "AddressesOutsidePool")
            ),
            "condition of the group",
        )
        assert address(family, 100) in kept["message"]
        again = {"metadata": {"annotations": {"purelb.io/re-evaluate": "true"}}}
        cluster.api.merge_patch(path, again)
        has(cluster, path, address(family, 103))
        assert "purelb.io/re-evaluate" not in cluster.api.get(path)["metadata"]["annotations"]

    def test_an_address_of_a_deleted_group_is_kept(self, cluster, make_group, ask, family):
        group = make_group(pools(family, span(family, 100, 105)))
        path = ask(family, group)
        has(cluster, path, address(family, 100))
        cluster.api.delete(f"{GROUPS}/{group}")
        event(cluster, path, "AddressOutsidePool", group)
        has(cluster, path, address(family, 100))

    def test_a_service_that_names_another_group_moves(self, cluster, make_group, ask, family):
        one = make_group(pools(family, span(family, 100, 105)))
        other = make_group(pools(family, span(family, 110, 115)))
        path = ask(family, one)
        has(cluster, path, address(family, 100))
        named = {"metadata": {"annotations": {"purelb.io/service-group": other}}}
        cluster.api.merge_patch(path, named)
        has(cluster, path, address(family, 110))
        has(cluster, ask(family, one), address(family, 100))

    def test_of_two_that_overlap_the_younger_gives_nothing(self, cluster, make_group, ask, family):
        old = make_group(pools(family, span(family, 100, 105)))
        has(cluster, ask(family, old), address(family, 100))
        young = make_group(pools(family, span(family, 105, 110)))
        event(cluster, young, "PoolOverlaps", f"of ServiceGroup {old}")
        event(cluster, old, "PoolOverlaps", f"younger ServiceGroup {young}")
        event(cluster, ask(family, young), "AllocationFailed", "overlaps")
        eventually(
            lambda: condition(cluster, young, "Ready").get("reason") == "PoolOverlaps",
            "condition of the younger",
        )
        has(cluster, ask(family, old), address(family, 101))


class TestNamespaces:
    def test_a_closed_group_serves_its_namespaces_only(self, cluster, make_group, make_service):
        group = make_group(
            pools(V4, span(V4, 100, 105)), namespaces=["kube-public"], enforceNamespaces=True
        )
        path = make_service(
            "SingleStack", annotations={"purelb.io/service-group": group}, ipFamilies=["IPv4"]
        )
        event(cluster, path, "AllocationFailed", "namespace_denied: ")
        opened = {"spec": {"namespaces": ["kube-public", "default"]}}
        cluster.api.merge_patch(f"{GROUPS}/{group}", opened)
        has(cluster, path, "172.28.1.100")

    def test_who_names_none_gets_that_of_its_namespace(self, cluster, make_group, make_service):
        group = make_group(
            {**pools(V4, span(V4, 100, 105)), **pools(V6, span(V6, 100, 105))},
            namespaces=["default"],
        )
        has(cluster, make_service(), "172.28.1.100", "fd28:0:0:1::100")
        eventually(
            lambda: status_of(cluster, group).get("boundNamespaces") == ["default"], "namespaces"
        )


class TestServicesThatChange:
    def test_families_come_and_go(self, cluster, make_group, make_service):
        group = make_group({**pools(V4, span(V4, 100, 105)), **pools(V6, span(V6, 100, 105))})
        named = {"purelb.io/service-group": group}
        path = make_service("SingleStack", annotations=named, ipFamilies=["IPv4"])
        has(cluster, path, "172.28.1.100")
        cluster.api.merge_patch(
            path, {"spec": {"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv4", "IPv6"]}}
        )
        has(cluster, path, "172.28.1.100", "fd28:0:0:1::100")
        cluster.api.merge_patch(
            path, {"spec": {"ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv4"]}}
        )
        has(cluster, path, "172.28.1.100")
        status = eventually(
            lambda: (
                status_of(cluster, group).get("allocatedIPv6") == 0 and status_of(cluster, group)
            ),
            "status of the group",
        )
        assert (status["allocatedIPv4"], status["availableIPv4"]) == (1, 5)

    def test_another_type_gives_the_addresses_back(self, cluster, make_group, ask):
        group = make_group(pools(V4, span(V4, 100, 100)))
        path = ask(V4, group)
        has(cluster, path, "172.28.1.100")
        cluster.api.merge_patch(path, {"spec": {"type": "ClusterIP"}})
        has(cluster, path)
        eventually(
            lambda: (
                "purelb.io/allocated-by"
                not in cluster.api.get(path)["metadata"].get("annotations", {})
            ),
            "marks gone",
        )
        has(cluster, ask(V4, group), "172.28.1.100")

    def test_another_class_is_left_alone(self, cluster, make_group, ask):
        group = make_group(pools(V4, span(V4, 100, 105)))
        other = ask(V4, group, loadBalancerClass="example.com/other")
        ours = ask(V4, group, loadBalancerClass="purelb.io/purelb-v2")
        has(cluster, ours, "172.28.1.100")
        assert ingress(cluster.api.get(other)) == []

    @pytest.mark.parametrize("family", FAMILIES)
    def test_traffic_policy_local_stays_only_where_it_is_allowed(
        self, cluster, make_group, ask, family
    ):
        group = make_group(pools(family, span(family, 100, 105)))
        path = ask(family, group, externalTrafficPolicy="Local")
        has(cluster, path, address(family, 100))
        assert cluster.api.get(path)["spec"]["externalTrafficPolicy"] == "Cluster"
        event(cluster, path, "ExternalTrafficPolicyChanged", "purelb.io/allow-local")
        allowed = {"purelb.io/allow-local": "true"}
        path = ask(family, group, externalTrafficPolicy="Local", annotations=allowed)
        has(cluster, path, address(family, 101))
        assert cluster.api.get(path)["spec"]["externalTrafficPolicy"] == "Local"


def test_a_group_in_another_namespace_is_counted_and_not_used(cluster):
    body = {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "lost", "namespace": "default"},
        "spec": {"local": pools(V4, span(V4, 100, 105))},
    }
    name = 'purelb_servicegroups_out_of_scope{name="lost",namespace="default",type="local"}'
    cluster.api.create(body)
    try:
        eventually(lambda: allocator_metric(cluster, name) == 1, "metric of the group")
    finally:
        cluster.api.delete("/apis/purelb.io/v2/namespaces/default/servicegroups/lost")
    eventually(lambda: allocator_metric(cluster, name) is None, "end of the metric")


def test_an_idle_pool_has_a_status(cluster, make_group):
    group = make_group({**pools(V4, span(V4, 100, 109)), **pools(V6, span(V6, 100, 109))})
    path = f"{GROUPS}/{group}"
    status = eventually(lambda: cluster.api.get(path).get("status"), "status")
    conditions = {c["type"]: c["status"] for c in status.pop("conditions")}
    assert conditions == {"Ready": "True", "Exhausted": "False", "AddressesOutsidePool": "False"}
    assert status == {
        "announce": "Local",
        "ipam": "Cluster",
        "addresses": ["172.28.1.100-172.28.1.109", "fd28:0:0:1::100-fd28:0:0:1::109"],
        "allocatedIPv4": 0,
        "availableIPv4": 10,
        "allocatedIPv6": 0,
        "availableIPv6": 10,
    }


def test_an_exhausted_pool_says_so(cluster, make_group, ask):
    group = make_group(pools(V6, span(V6, 100, 100)))
    has(cluster, ask(V6, group), "fd28:0:0:1::100")
    event(cluster, ask(V6, group), "AllocationFailed", "exhausted: ")
    eventually(lambda: condition(cluster, group, "Exhausted").get("status") == "True", "condition")

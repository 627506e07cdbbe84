# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What two tenants, each with the role `edit` in a namespace of its own, get and cannot get.

Their requests are sent with their own tokens. Each test is for both families.
"""

from __future__ import annotations

import itertools
from contextlib import ExitStack

import pytest

from labkit.api import ApiError
from tests.support.lab.accounts import client, objects_applied
from tests.support.lab.cluster_queries import address_info, eventually, holder, ingress
from tests.support.lab.grants import both, entry, pools, wait_for_addresses, wait_for_event

pytestmark = [pytest.mark.timeout(90), pytest.mark.safety]
TENANTS = ("tenant-a", "tenant-b")
KEY = {"purelb.io/allow-shared-ip": "x"}

_numbers = itertools.count(1)


def account_of(name):
    """Return a namespace and a ServiceAccount in it with the role `edit`, and nothing else."""
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": "tenant", "namespace": name}
    return [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}},
        {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "tenant", "namespace": name},
        },
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "tenant", "namespace": name},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"},
            "subjects": [subject],
        },
    ]


@pytest.fixture(scope="module")
def tokens(lab):
    """The API as each tenant may use it, by namespace."""
    with ExitStack() as stack:
        for name in TENANTS:
            stack.enter_context(objects_applied(lab, account_of(name)))
        yield {name: client(lab, name, "tenant") for name in TENANTS}


@pytest.fixture
def ask(tokens):
    """Creates a dual-stack Service as a tenant; returns its path."""
    made = []

    def make(tenant, group, *, port=80, annotations=None):
        body = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": f"web-{next(_numbers)}",
                "namespace": tenant,
                "annotations": {"purelb.io/service-group": group, **(annotations or {})},
            },
            "spec": {
                "type": "LoadBalancer",
                "ipFamilyPolicy": "RequireDualStack",
                "ports": [{"port": port}],
            },
        }
        made.append((tenant, tokens[tenant].path_of(tokens[tenant].create(body))))
        return made[-1][1]

    yield make
    for tenant, path in made:
        tokens[tenant].delete(path)


def annotate(api, path, **annotations):
    marks = {f"purelb.io/{name.replace('_', '-')}": text for name, text in annotations.items()}
    api.merge_patch(path, {"metadata": {"annotations": marks}})


def refused(request, *arguments, **more):
    """Assert that the policy refuses a request."""
    with pytest.raises(ApiError, match="only PureLB writes these annotations"):
        request(*arguments, **more)


def test_forged_annotations_put_no_local_address_on_the_dummy(cluster, tokens, make_group, ask):
    group = make_group(pools(entry(100, 105)))
    path = ask("tenant-a", group)
    wait_for_addresses(cluster, path, *both(100))
    homes = {vip: holder(cluster, vip) for vip in both(100)}
    before = cluster.api.get(path)["metadata"]["annotations"]
    forged = {"pool_type": "remote", "addresses": "x", "skip_ipv6_dad": "true"}
    refused(annotate, tokens["tenant-a"], path, **forged)
    # A tool that applies what tenants keep in Git may be allowed to write them.
    annotate(cluster.api, path, **forged)
    # The agents have seen it before the allocator has corrected it.
    message = wait_for_event(cluster, path, "AllocationFailed", "'x' is no IP address")
    assert message.startswith("invalid_address: ")
    annotate(tokens["tenant-a"], path, addresses=None)
    eventually(lambda: marks_of(cluster, path) == marks_in(before), "corrected annotations")
    for node in cluster.nodes:
        for vip in both(100):
            places = {
                link["ifname"]
                for link in cluster.addresses(node)
                for info in link["addr_info"]
                if info.get("local") == vip
            }
            assert places == ({"eth0"} if node == homes[vip] else set())
    assert not address_info(cluster, homes[both(100)[1]], both(100)[1]).get("nodad")


def marks_in(annotations):
    """Return the annotations that only the allocator writes."""
    names = ("allocated-by", "allocated-from", "pool-type", "skip-ipv6-dad")
    return {name: annotations.get(f"purelb.io/{name}") for name in names}


def marks_of(cluster, path):
    return marks_in(cluster.api.get(path)["metadata"].get("annotations", {}))


def test_no_annotation_of_a_tenant_opens_a_fence(cluster, tokens, make_group, ask):
    fence = {"namespaces": ["tenant-b"], "enforceNamespaces": True}
    closed = make_group(pools(entry(100, 105)), **fence)
    shared = make_group(pools(entry(110, 115)), namespaces=["tenant-b"])
    for group in (closed, shared):
        forged = {"purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": group}
        refused(ask, "tenant-a", group, annotations=forged)
        path = ask("tenant-a", group)
        annotate(cluster.api, path, allocated_by="PureLB", allocated_from=group)
        message = wait_for_event(cluster, path, "AllocationFailed", "namespace_denied: ")
        assert "tenant-b" not in message
        assert ingress(cluster.api.get(path)) == []
        eventually(lambda p=path: not any(marks_of(cluster, p).values()), "no annotations")
    inside = ask("tenant-b", closed)
    wait_for_addresses(cluster, inside, *both(100))
    outside = ask("tenant-b", "default")
    message = wait_for_event(cluster, outside, "AllocationFailed", "namespace_denied: ")
    assert f"{closed} or {shared} only" in message


@pytest.mark.parametrize("sharing", ["namespace", "cluster"])
def test_addresses_are_shared_across_namespaces_only_where_the_group_says_so(
    cluster, tokens, make_group, ask, sharing
):
    group = make_group(pools(entry(100, 105)), sharing=sharing)
    victim = ask("tenant-a", group, annotations=KEY)
    wait_for_addresses(cluster, victim, *both(100))
    other = ask("tenant-b", group, port=81, annotations=KEY)
    wait_for_addresses(cluster, other, *both(100 if sharing == "cluster" else 101))
    taken = {"purelb.io/addresses": ",".join(both(100)), **KEY}
    thief = ask("tenant-b", group, annotations=taken)
    reason = "port_conflict: " if sharing == "cluster" else "sharing_key_conflict: "
    message = wait_for_event(cluster, thief, "AllocationFailed", reason)
    assert "tenant-a" not in message
    # The victim's new port moves the one that came later, not the victim.
    tokens["tenant-a"].merge_patch(
        victim, {"spec": {"ports": [{"port": 80, "name": "a"}, {"port": 81, "name": "b"}]}}
    )
    if sharing == "cluster":
        wait_for_event(cluster, other, "AllocationFailed", "port_conflict: ")
        wait_for_addresses(cluster, other)
    assert ingress(cluster.api.get(victim)) == list(both(100))

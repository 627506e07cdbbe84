# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from purelb.core.api.custom_resources import node_config_of, service_group_of
from purelb.core.errors import ObjectError
from purelb.core.model import PoolType
from purelb.core.settings import AddressConfig


def group(pools, kind="local"):
    return {"metadata": {"name": "g", "namespace": "purelb-system"}, "spec": {kind: pools}}


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_a_service_group_is_read(kind):
    four = {"pool": "10.0.0.1-10.0.0.9", "subnet": "10.0.0.0/24", "aggregation": "/32"}
    six = {"pool": "fd53::/126", "subnet": "fd53::/64"}
    read = service_group_of(group({"v4pool": four, "v6pools": [six], "skipIPv6DAD": True}, kind))
    assert read.pool_type is PoolType(kind)
    assert [str(r) for r in read.ranges] == ["10.0.0.1-10.0.0.9", "fd53::-fd53::3"]
    assert [r.prefixlen for r in read.ranges] == [32, 64]
    assert read.skip_dad


BACKWARDS = {"pool": "10.0.0.9-10.0.0.1", "subnet": "10.0.0.0/24"}
OTHER_FAMILY = {"pool": "10.0.0.1/32", "subnet": "10.0.0.0/24"}


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (group({"v4pool": BACKWARDS}), "v4pool: .*ends before"),
        (group({"v4pool": {"subnet": "10.0.0.0/24"}}), "v4pool: pool is missing"),
        (group({"v6pools": [OTHER_FAMILY]}), r"v6pools\[0\]: must hold IPv6"),
        ({"metadata": {"name": "g"}, "spec": {}}, "mutually exclusive: write exactly one"),
        (group({"url": "https://netbox"}, "netbox"), "spec.netbox.tenant: is missing"),
        (group({"tenant": "purelb"}, "netbox"), "spec.netbox.url: is missing"),
        (
            group({"url": "https://netbox", "tenant": "t", "aggregation": "24"}, "netbox"),
            "spec.netbox.aggregation: .*'default' or a mask",
        ),
        (group({"announce": "local"}, "external"), "spec.external.provider: is missing"),
        (group({"provider": "p"}, "external"), "spec.external.announce: write local or remote"),
    ],
)
def test_a_bad_service_group_is_refused_by_object_and_field(body, problem):
    with pytest.raises(ObjectError, match=f"ServiceGroup .*g: .*{problem}"):
        service_group_of(body)


def test_a_groups_rules_are_read():
    pools = {"v4pools": [{"pool": "10.0.0.1-10.0.0.9", "subnet": "10.0.0.0/24"}], "multiPool": True}
    meta = {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z", "generation": 3}
    spec = {
        "local": pools,
        "namespaces": ["x"],
        "enforceNamespaces": True,
        "namespaceDefault": True,
        "sharing": "cluster",
    }
    group = service_group_of({"metadata": meta, "spec": spec})
    assert (group.multi_pool, group.balance_pools, group.created, group.generation) == (
        True,
        False,
        "2026-01-01T00:00:00Z",
        3,
    )
    assert (group.namespaces, group.enforces, group.is_namespace_default) == ({"x"}, True, True)
    assert group.shares_across_namespaces


def test_the_interface_for_remote_addresses_has_defaults_of_its_own():
    config = node_config_of({"metadata": {"name": "default"}, "spec": {"local": {}}})
    assert config.dummy_interface == "kube-lb0"
    assert config.dummy_addresses == AddressConfig(0, None, no_prefix_route=False)


def test_the_interface_for_remote_addresses_is_configured_apart():
    on_dummy = {"validLifetime": 120, "noPrefixRoute": True}
    local = {"dummyInterface": "lb0", "addressConfig": {"dummyInterface": on_dummy}}
    config = node_config_of({"metadata": {"name": "default"}, "spec": {"local": local}})
    assert config.dummy_interface == "lb0"
    assert config.dummy_addresses == AddressConfig(120, None, no_prefix_route=True)
    assert config.addresses == AddressConfig()

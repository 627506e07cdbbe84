# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from typing import Any

import pytest

from purelb.migrate.sharing import with_sharing

POOLS = {
    "v4pool": {"pool": "10.0.0.0/28", "subnet": "10.0.0.0/24"},
    "v6pool": {"pool": "fd00::/124", "subnet": "fd00::/64"},
}
NETBOX = {"url": "https://netbox.example.com", "tenant": "a"}


def group(name: str, **spec: Any) -> dict[str, Any]:
    meta = {"namespace": "purelb", "name": name}
    return {"kind": "ServiceGroup", "metadata": meta, "spec": spec}


def service(namespace: str, address: str, given_by: str = "default") -> dict[str, Any]:
    marks = {"purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": given_by}
    return {
        "metadata": {"namespace": namespace, "name": "web", "annotations": marks},
        "spec": {"type": "LoadBalancer"},
        "status": {"loadBalancer": {"ingress": [{"ip": address}]}},
    }


@pytest.mark.parametrize("address", ["10.0.0.1", "fd00::1"], ids=["v4", "v6"])
@pytest.mark.parametrize("kind", ["local", "remote"])
def test_a_group_whose_address_is_shared_across_namespaces_still_allows_it(kind, address):
    groups = [group("default", **{kind: POOLS}), group("other", local={}), {"kind": "LBNodeAgent"}]
    first, *others = with_sharing(groups, [service("a", address), service("b", address)])
    assert first["spec"] == {kind: POOLS, "sharing": "cluster"}
    assert others == groups[1:]


def test_so_does_one_whose_addresses_are_in_a_netbox():
    services = [service("a", "192.0.2.1", "boxed"), service("b", "192.0.2.1", "boxed")]
    (found,) = with_sharing([group("boxed", netbox=NETBOX)], services)
    assert found["spec"]["sharing"] == "cluster"


@pytest.mark.parametrize(
    "services",
    [
        [service("a", "10.0.0.1"), service("a", "10.0.0.1")],
        [service("a", "10.0.0.1"), service("b", "10.0.0.2")],
        [service("a", "10.0.1.1", "x"), service("b", "10.0.1.1", "x")],
        [],
    ],
    ids=["one namespace", "two addresses", "another group", "none"],
)
def test_any_other_group_is_as_it_was(services):
    groups = [group("default", local=POOLS)]
    assert with_sharing(groups, services) == groups


def test_what_v2_serves_already_does_not_count():
    services = [service("a", "10.0.0.1"), service("b", "10.0.0.1")]
    services[0]["metadata"]["annotations"]["purelb.io/pool-type"] = "local"
    groups = [group("default", local=POOLS)]
    assert with_sharing(groups, services) == groups

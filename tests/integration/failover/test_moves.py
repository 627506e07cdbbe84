# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Duplicate address detection: where an address is new, and not where it moves."""

from __future__ import annotations

import pytest

from tests.support.lab.cluster_queries import (
    GRACEFUL,
    address_info,
    addresses_of,
    holder,
)
from tests.support.lab.faults import OUT_OF_SERVICE, wait_until_moved

pytestmark = [pytest.mark.timeout(90), pytest.mark.safety]
GROUP = "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups/moves"


@pytest.fixture(params=[False, True], ids=["detected", "skipped"])
def skips(cluster, request):
    """Whether the ServiceGroup `moves` skips duplicate address detection."""
    v4 = {"subnet": "172.28.1.0/24", "pool": "172.28.1.150-172.28.1.159"}
    v6 = {"subnet": "fd28:0:0:1::/64", "pool": "fd28:0:0:1::150-fd28:0:0:1::159"}
    cluster.api.apply(
        {
            "apiVersion": "purelb.io/v2",
            "kind": "ServiceGroup",
            "metadata": {"name": "moves", "namespace": "purelb-system"},
            "spec": {"local": {"v4pool": v4, "v6pool": v6, "skipIPv6DAD": request.param}},
        }
    )
    yield request.param
    cluster.api.delete(GROUP)


def test_an_address_is_detected_where_it_is_new_and_usable_at_once_where_it_moves(
    cluster, make_service, skips, mark
):
    service = make_service(annotations={"purelb.io/service-group": "moves"})
    vips = addresses_of(cluster, service)
    first = {vip: holder(cluster, vip) for vip in vips}
    (v6,) = (vip for vip in vips if ":" in vip)
    assert bool(address_info(cluster, first[v6], v6).get("nodad")) is skips
    for node in set(first.values()):
        mark(node, taints=[OUT_OF_SERVICE])
        own = [vip for vip in vips if first[vip] == node]
        wait_until_moved(cluster, node, own, seconds=GRACEFUL)
    found = address_info(cluster, holder(cluster, v6), v6)
    assert found["nodad"]
    assert not found.get("tentative")

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The findings about Services that another program writes, too."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.model import PoolType
from tests.support.core.audited_cluster import AuditedCluster
from tests.support.core.snapshots import VIP4, VIP6

NODE = {4: ip_address("192.0.2.1"), 6: ip_address("2001:db8::1")}
THEIRS = frozenset({"k3s"})
DISPUTED = [("error", "serviceDisputed")]


def served(vip, **more):
    cluster = AuditedCluster(vip)
    cluster.services[0] = replace(cluster.services[0], **more)
    return cluster


@pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
class TestOverwritten:
    @pytest.mark.parametrize("is_marked", [True, False])
    def test_who_replaced_our_address_is_named(self, vip, is_marked):
        theirs = NODE[vip.version]
        cluster = served(
            vip, addresses=(theirs,), address_writers=THEIRS, allocated_by_us=is_marked
        )
        (found,) = [f for f in cluster.audit().findings if f.code == "serviceDisputed"]
        assert found.severity.value == "error"
        assert found.object == "Service default/web"
        assert found.message.startswith(f"k3s writes {theirs} into its status")
        assert "loadBalancerClass" in found.remediation

    def test_a_host_name_next_to_ours_is_enough(self, vip):
        cluster = served(vip, other_ingress=1, address_writers=THEIRS)
        assert cluster.audited() == DISPUTED

    def test_what_we_have_written_ourselves_is_no_dispute(self, vip):
        cluster = served(vip, address_writers=frozenset({"purelb-allocator"}))
        assert cluster.audited() == []

    def test_a_service_of_another_class_is_theirs(self, vip):
        cluster = served(
            vip,
            addresses=(NODE[vip.version],),
            address_writers=THEIRS,
            load_balancer_class="example.com/other",
        )
        assert cluster.audited() == []


class TestKeptLocal:
    def test_who_set_the_policy_again_is_named(self):
        cluster = served(VIP4, is_external_local=True, policy_writers=frozenset({"argocd"}))
        (found,) = cluster.audit().findings
        assert (found.severity.value, found.code) == ("warning", "serviceDisputed")
        assert found.message.startswith("argocd sets externalTrafficPolicy to Local again")

    def test_it_is_in_order_where_the_service_allows_it(self):
        assert served(VIP4, is_external_local=True, allows_local=True).audited() == []

    def test_it_is_in_order_for_a_remote_address(self):
        cluster = served(VIP4, is_external_local=True, pool_type=PoolType.REMOTE)
        groups = tuple(replace(g, pool_type=PoolType.REMOTE) for g in cluster.evidence.groups)
        cluster.evidence = replace(cluster.evidence, groups=groups)
        assert "serviceDisputed" not in [code for _severity, code in cluster.audited()]

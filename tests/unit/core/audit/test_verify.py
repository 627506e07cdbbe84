# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from purelb.core.audit.evidence import NeighborReply, format_mac
from purelb.core.election.election import rank
from purelb.core.model import InterfaceAddress, PoolType
from purelb.core.names import FENCED_PROTOCOL
from purelb.core.node.configuration import NodeConfig, Requirement
from tests.support.core.audited_cluster import (
    DUMMY,
    NODES,
    NOW,
    AuditedCluster,
    eth0,
    held,
    mac,
    own,
)
from tests.support.core.snapshots import GROUP, NET4, NET6, VIP4, VIP6

BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
REMOTE = replace(GROUP, pool_type=PoolType.REMOTE)


@BOTH
class TestLocalAddress:
    def winner(self, vip):
        return rank(NODES, vip)[0]

    def other(self, vip):
        return rank(NODES, vip)[1]

    def test_on_the_winner_alone_is_no_finding(self, vip):
        cluster = AuditedCluster(vip)
        assert cluster.found() == []
        (one,) = cluster.verify().holdings[vip]
        assert (one.node, one.link.name) == (self.winner(vip), "eth0")

    def test_on_no_node_is_an_error(self, vip):
        cluster = AuditedCluster(vip)
        cluster.only(self.winner(vip))
        assert cluster.found() == [("error", "notHeld")]

    def test_on_a_second_node_is_an_error_with_both_mac_addresses(self, vip):
        cluster = AuditedCluster(vip)
        cluster.put(self.other(vip), held(vip, seconds=None))
        assert cluster.found() == [("error", "wrongHolder")]
        for node in (self.winner(vip), self.other(vip)):
            assert format_mac(mac(node)) in cluster.message()

    def test_on_another_node_alone_is_two_errors(self, vip):
        cluster = AuditedCluster(vip)
        cluster.only(self.winner(vip))
        cluster.put(self.other(vip), held(vip))
        assert cluster.found() == [("error", "notHeld"), ("error", "wrongHolder")]

    def test_without_a_candidate_may_be_held_nowhere(self, vip):
        cluster = AuditedCluster(vip)
        for node in NODES:
            cluster.leases[node] = replace(cluster.leases[node], renew_time=NOW - 99)
        assert ("error", "wrongHolder") in cluster.found()
        assert "no node wins it" in "".join(f.message for f in cluster.verify().findings)

    def test_on_another_interface_is_an_error(self, vip):
        cluster = AuditedCluster(vip)
        cluster.only(self.winner(vip), held(vip, link=9))
        assert cluster.found() == [("error", "wrongInterface")]
        assert "it belongs on eth0" in cluster.message()

    @pytest.mark.parametrize(
        ("change", "finding"),
        [
            pytest.param({"seconds": None}, ("error", "outlivesLease"), id="for ever"),
            pytest.param({"seconds": 9.1}, ("error", "outlivesLease"), id="too long"),
            pytest.param({"dad_failed": True, "tentative": True}, ("error", "dadFailed"), id="dad"),
            pytest.param({"tentative": True}, ("warning", "tentative"), id="tentative"),
            pytest.param({"prefixlen": 30}, ("warning", "wrongPrefix"), id="prefix"),
        ],
    )
    def test_in_a_wrong_state_is_found(self, vip, change, finding):
        cluster = AuditedCluster(vip)
        cluster.only(self.winner(vip), held(vip, **change))
        assert cluster.found() == [finding]

    def test_that_no_agent_put_there_is_found(self, vip):
        cluster = AuditedCluster(vip)
        winner = self.winner(vip)
        link_local = InterfaceAddress(2, ip_address("fe80::1"), 64, protocol=3)
        cluster.only(winner, held(vip, seconds=None, protocol=0), link_local)
        assert cluster.found() == [("error", "foreignAddress")]
        assert f"no agent put it there, so {winner} does not announce it" in cluster.message()

    def test_of_a_kernel_without_marks_is_taken_for_ours(self, vip):
        cluster = AuditedCluster(vip)
        cluster.only(self.winner(vip), held(vip, protocol=0))
        assert cluster.found() == []

    def test_may_last_as_long_as_the_lease_and_a_second_for_rounding(self, vip):
        cluster = AuditedCluster(vip)
        cluster.only(self.winner(vip), held(vip, seconds=9.0))
        assert cluster.found() == []

    def test_that_the_fence_ends_may_outlast_the_lease(self, vip):
        cluster = AuditedCluster(vip)
        fenced = held(vip, seconds=60.0, protocol=FENCED_PROTOCOL)
        cluster.only(self.winner(vip), fenced)
        assert ("error", "outlivesLease") not in cluster.found()
        cluster.only(self.winner(vip), replace(fenced, expires_at=None))
        assert ("error", "outlivesLease") in cluster.found()

    def test_that_a_dead_agent_left_behind_its_fence_is_held_by_no_node(self, vip):
        """It is silent there, and on the next winner it answers."""
        cluster, other = AuditedCluster(vip), self.other(vip)
        cluster.put(other, held(vip, seconds=50.0, protocol=FENCED_PROTOCOL))
        assert cluster.found() == [("error", "wrongHolder")]
        cluster.leases[other] = replace(cluster.leases[other], renew_time=NOW - 99)
        assert ("error", "wrongHolder") not in cluster.found()
        (one,) = cluster.verify().holdings[vip]
        assert one.node == self.winner(vip)

    def test_prefix_of_an_address_outside_of_all_pools_is_that_of_the_subnet(self, vip):
        cluster = AuditedCluster(vip)
        cluster.evidence = replace(cluster.evidence, groups=())
        assert cluster.found() == [("warning", "outsidePools")]

    def test_on_an_interface_that_is_down_is_an_error(self, vip):
        cluster, winner = AuditedCluster(vip), self.winner(vip)
        config = NodeConfig("all", local_interface="none", interfaces=("eth0",))
        cluster.evidence = replace(cluster.evidence, configs=(config,))
        cluster.links[winner] = (replace(eth0(winner), is_up=False), DUMMY)
        assert cluster.found() == [("error", "interfaceDown")]

    def test_of_a_node_without_an_interface_in_its_subnet_is_found(self, vip):
        cluster, winner = AuditedCluster(vip), self.winner(vip)
        cluster.held[winner] = ()
        assert cluster.found() == [("error", "noLocalInterface"), ("error", "subnetsDiffer")]

    def test_on_a_node_without_a_usable_configuration_is_misplaced(self, vip):
        cluster, winner = AuditedCluster(vip), self.winner(vip)
        bad = NodeConfig("bad", selector=(Requirement("here", "Exists"),), problem="no expression")
        cluster.evidence = replace(
            cluster.evidence, configs=(bad, NodeConfig("all")), labels={winner: {"here": ""}}
        )
        assert cluster.found() == [("error", "subnetsDiffer"), ("error", "wrongInterface")]

    def test_that_is_a_nodes_own_is_an_error(self, vip):
        cluster = AuditedCluster(vip)
        cluster.evidence = replace(cluster.evidence, known=frozenset({vip}))
        assert cluster.found() == [("error", "nodeAddress")]

    def test_is_not_missed_on_a_node_that_was_not_looked_at(self, vip):
        cluster = AuditedCluster(vip)
        cluster.seen.remove(self.winner(vip))
        assert cluster.found() == [("warning", "nodeNotObserved")]

    def test_is_not_missed_on_a_node_that_could_not_be_read(self, vip):
        cluster = AuditedCluster(vip)
        cluster.seen.remove(self.winner(vip))
        cluster.evidence = replace(cluster.evidence, unread={self.winner(vip): "no route"})
        assert cluster.found() == [("warning", "nodeUnread")]
        assert cluster.message() == "its interfaces could not be read: no route"

    def test_is_looked_for_in_vain_where_no_node_could_be_read(self, vip):
        cluster = AuditedCluster(vip)
        cluster.seen = []
        cluster.evidence = replace(cluster.evidence, unread={NODES[0]: "no route"})
        others = [("warning", "nodeNotObserved")] * (len(NODES) - 1)
        assert cluster.found() == [*others, ("warning", "nodeUnread")]

    def test_is_not_looked_for_where_no_node_was_looked_at(self, vip):
        cluster = AuditedCluster(vip)
        cluster.seen = []
        assert cluster.found() == []


@BOTH
class TestRemoteAddress:
    def cluster(self, vip):
        cluster = AuditedCluster(vip, pool_type=PoolType.REMOTE)
        cluster.evidence = replace(cluster.evidence, groups=(REMOTE,))
        return cluster

    def test_on_the_dummy_interface_of_every_node_is_no_finding(self, vip):
        assert self.cluster(vip).found() == []

    def test_missing_on_one_node_is_a_warning_and_on_all_an_error(self, vip):
        cluster = self.cluster(vip)
        cluster.only("n2")
        assert cluster.found() == [("warning", "notHeld")]
        cluster.only("n1")
        cluster.only("n3")
        assert cluster.found() == [("error", "notHeld")] * 3

    def test_on_a_real_interface_is_an_error(self, vip):
        cluster = self.cluster(vip)
        cluster.put("n1", held(vip))
        assert cluster.found() == [("error", "wrongInterface")]

    def test_on_a_node_without_a_ready_endpoint_is_found(self, vip):
        cluster = self.cluster(vip)
        (one,) = cluster.services
        cluster.services = [replace(one, is_external_local=True)]
        cluster.endpoints = {one.key: frozenset({"n1", "n2"})}
        assert cluster.found() == [("warning", "wrongHolder")]
        assert "has no ready endpoint" in cluster.message()

    def test_may_stay_on_a_node_that_lost_its_lease(self, vip):
        cluster = self.cluster(vip)
        cluster.leases["n3"] = replace(cluster.leases["n3"], renew_time=NOW - 99)
        assert {code for _severity, code in cluster.found()} == {"leaseExpired", "staleAnnouncer"}
        del cluster.leases["n3"]
        assert {code for _severity, code in cluster.found()} == {
            "nodeWithoutAgent",
            "staleAnnouncer",
        }

    def test_without_any_dummy_interface_is_found(self, vip):
        cluster = self.cluster(vip)
        cluster.only("n1")
        cluster.links["n1"] = (eth0("n1"),)
        assert cluster.found() == [("warning", "notHeld")]


class TestNode:
    def test_lease_with_a_foreign_subnet_is_an_error(self):
        cluster = AuditedCluster()
        more = (NET4, NET6, ip_network("10.9.0.0/16"))
        cluster.leases["n1"] = replace(cluster.leases["n1"], subnets=more)
        assert cluster.found() == [("error", "subnetsDiffer")]
        assert "names 10.9.0.0/16" in cluster.message()

    def test_lease_without_one_of_its_subnets_is_a_warning(self):
        cluster = AuditedCluster()
        cluster.leases["n1"] = replace(cluster.leases["n1"], subnets=(NET4,))
        assert cluster.found() == [("warning", "subnetsDiffer")]
        assert f"does not name {NET6}" in cluster.message()

    def test_unreachable_metrics_are_a_warning_with_the_reason(self):
        cluster = AuditedCluster()
        cluster.evidence = replace(cluster.evidence, silent={"n1": "refused"})
        assert cluster.found() == [("warning", "metricsUnreachable")]
        assert cluster.message() == "refused"

    def test_with_an_address_that_no_service_has_is_found(self):
        cluster = AuditedCluster()
        cluster.put("n2", held(VIP4), held(VIP6, link=9, seconds=None))
        assert cluster.found() == [("warning", "noService")] * 2

    def test_keeps_its_own_addresses_in_a_pool(self):
        cluster = AuditedCluster()
        cluster.put("n2", held(VIP4, seconds=None, protocol=0))
        assert cluster.found() == []


@BOTH
class TestNeighborAnswer:
    def found(self, vip, *nodes, macs=(), **more):
        cluster = AuditedCluster(vip)
        heard = (*map(mac, nodes), *macs)
        cluster.evidence = replace(cluster.evidence, answers=(NeighborReply(vip, heard, **more),))
        return cluster

    def test_of_the_winner_is_right(self, vip):
        assert self.found(vip, rank(NODES, vip)[0]).found() == []

    def test_of_two_hosts_is_an_error_that_names_both(self, vip):
        cluster = self.found(vip, rank(NODES, vip)[0], macs=[b"\x06\0\0\0\0\x09"])
        assert cluster.found() == [("error", "answeredTwice")]
        assert "06:00:00:00:00:09 (no known node)" in cluster.message()
        assert f"({rank(NODES, vip)[0]}, eth0)" in cluster.message()

    def test_of_another_host_is_an_error(self, vip):
        assert self.found(vip, rank(NODES, vip)[1]).found() == [("error", "wrongAnswer")]

    def test_is_accepted_if_the_winner_was_not_observed(self, vip):
        cluster = self.found(vip, rank(NODES, vip)[0])
        cluster.seen = []
        assert cluster.found() == []

    def test_missing_answer_is_an_error_unless_the_asker_has_the_address(self, vip):
        assert self.found(vip).found() == [("error", "noAnswer")]
        assert self.found(vip, is_own=True).found() == []

    def test_for_an_address_without_a_winner_is_ignored(self, vip):
        cluster = self.found(vip, "n1")
        cluster.services = []
        cluster.held = {n: own(n) for n in NODES}
        assert cluster.found() == []


def test_the_findings_of_the_audit_are_among_them_errors_first():
    cluster = AuditedCluster(ip_address("203.0.113.1"))
    cluster.leases["n1"] = replace(cluster.leases["n1"], holder="n9")
    found = cluster.found()
    assert {("error", "noEligibleNodes"), ("warning", "leaseHolder")} <= set(found)
    assert found == sorted(found)


def test_interface_without_a_mac_address_is_named():
    assert format_mac(b"") == "no MAC address"


def test_a_host_that_is_called_otherwise_than_its_node_is_found():
    cluster = AuditedCluster()
    del cluster.leases["n3"], cluster.nodes["n3"]
    assert cluster.found() == [("warning", "noLease")]
    assert "neither a Node nor a Lease of this name" in cluster.message()

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Nodes that answer ARP for what they do not hold, and kernels that drop requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.audit.evidence import LinkSettings, Observation
from purelb.core.audit.verify import verify
from purelb.core.fence.gaps import EXACT
from purelb.core.model import InterfaceAddress, Link
from tests.support.core.audited_cluster import NODES, AuditedCluster, eth0, mac
from tests.support.core.snapshots import NET4, NET6, VIP4, VIP6

ETH1 = Link(3, "eth1", b"\x02\0\0\0\x01\x01")


class Cluster(AuditedCluster):
    """Its nodes have these settings by interface, and service proxies."""

    def __init__(self, *vips, settings=None, proxies=()):
        super().__init__(*vips)
        self.settings, self.proxies = settings or {}, proxies

    def verify(self):
        seen = [
            Observation(n, self.links[n], self.held[n], self.settings, tuple(self.proxies))
            for n in NODES
        ]
        return verify(self.audit(), replace(self.evidence, observations=tuple(seen)))

    def texts(self):
        return [(f.object, f.message) for f in self.verify().findings]


def test_a_node_that_others_heard_is_found():
    cluster = Cluster(VIP4)
    for node, answering in (("n1", ("n2",)), ("n3", ("n2", "n1"))):
        cluster.leases[node] = replace(cluster.leases[node], answering=answering)
    assert cluster.audited() == [("error", "nodeAnswers")] * 2
    assert cluster.texts() == [
        ("node n1", "answers for addresses of n3, too"),
        ("node n2", "answers for addresses of n1, n3, too"),
    ]
    cluster.leases["n3"] = replace(cluster.leases["n3"], renew_time=0.0)
    assert ("node n1", "answers for addresses of n3, too") not in cluster.texts()


class TestProxy:
    def test_without_strict_arp_is_found_on_each_node(self):
        cluster = Cluster(VIP4, settings={2: LinkSettings(0, 0)}, proxies=["kube-ipvs0"])
        assert cluster.found() == [("error", "nodeAnswers")] * 3
        assert cluster.texts()[0][1] == (
            "has the addresses of all Services on kube-ipvs0, and answers for them on eth0 "
            "(arp_ignore is 0)"
        )

    @pytest.mark.parametrize(
        ("arp_ignore", "proxies"), [(1, ["kube-ipvs0"]), (None, ["kube-ipvs0"]), (0, [])]
    )
    def test_is_no_problem_otherwise(self, arp_ignore, proxies):
        settings = {2: LinkSettings(arp_ignore, 0)}
        assert Cluster(VIP4, settings=settings, proxies=proxies).found() == []


class TestTwoInterfaces:
    def cluster(self, *, net=NET4, arp_ignore=0, link=ETH1):
        cluster = Cluster(VIP4, VIP6, settings={3: LinkSettings(arp_ignore, 0)})
        cluster.links["n1"] += (link,)
        cluster.put("n1", InterfaceAddress(3, net[50], net.prefixlen))
        return cluster

    def test_in_one_subnet_are_found(self):
        cluster = self.cluster()
        assert cluster.found() == [("warning", "twoInterfacesAnswer")]
        ((node, text),) = cluster.texts()
        assert node == "node n1"
        assert text.startswith("eth0 and eth1 are both in 172.28.1.0/24, and eth1 answers for")

    def test_are_no_problem_where_the_fence_stands(self):
        cluster = self.cluster()
        cluster.leases["n1"] = replace(cluster.leases["n1"], fence=EXACT)
        assert cluster.found() == []
        # Who says that no more may be dead, and its fence may be over.
        cluster.leases["n1"] = replace(cluster.leases["n1"], renew_time=0.0)
        assert ("warning", "twoInterfacesAnswer") in cluster.found()

    def test_also_if_both_are_selected(self):
        second = replace(ETH1, default_metrics={6: 0})
        cluster = self.cluster(link=second)
        assert ("warning", "twoInterfacesAnswer") in cluster.found()

    @pytest.mark.parametrize(
        "change", [{"arp_ignore": 1}, {"net": NET6}, {"link": replace(ETH1, mac=b"")}], ids=str
    )
    def test_are_no_problem_otherwise(self, change):
        assert self.cluster(**change).found() == []

    @pytest.mark.parametrize("who", ["winner", "nodes", "stranger"])
    def test_who_answers_twice_decides_the_remedy(self, who):
        cluster = Cluster(VIP4)
        (winner,) = [n for n in NODES if any(h.address == VIP4 for h in cluster.held[n])]
        (other, *_rest) = [n for n in NODES if n != winner]
        cluster.links[winner] += (ETH1,)
        macs = {"winner": ETH1.mac, "nodes": mac(other), "stranger": b"\x06\0\0\0\0\x09"}
        cluster.answered(VIP4, mac(winner), macs[who])
        (finding,) = cluster.verify().findings
        assert finding.code == "answeredTwice"
        words = {"winner": "two of its interfaces", "nodes": "strictARP", "stranger": "the host"}
        assert words[who] in finding.remediation

    def test_a_node_that_was_not_looked_at_is_known_by_its_lease(self):
        cluster = Cluster(VIP4)
        theirs = b"\x06\0\0\0\0\x09"
        cluster.leases["n2"] = replace(cluster.leases["n2"], macs=(theirs,))
        cluster.answered(VIP4, theirs)
        assert "06:00:00:00:00:09 (n2)" in cluster.message()


class TestStrictFilter:
    def cluster(self, vip, rp_filter):
        """Its default route is on eth1, and addresses are on eth0 as its LBNodeAgent says."""
        cluster = Cluster(vip, settings={2: LinkSettings(1, rp_filter)})
        (winner,) = [n for n in NODES if any(h.address == vip for h in cluster.held[n])]
        local = replace(eth0(winner), default_metrics={6: 1024})
        routed = replace(ETH1, default_metrics={4: 0})
        cluster.links[winner] = (local, routed)
        return cluster

    def test_on_another_interface_than_the_default_route_is_found(self):
        cluster = self.cluster(VIP4, 1)
        found = [t for t in cluster.verify().findings if t.code == "requestsFiltered"]
        assert "the default route is on eth1, and rp_filter of eth0 is 1" in found[0].message

    @pytest.mark.parametrize(("vip", "rp_filter"), [(VIP4, 2), (VIP4, 0), (VIP6, 1)])
    def test_is_no_problem_otherwise(self, vip, rp_filter):
        found = self.cluster(vip, rp_filter).verify().findings
        assert "requestsFiltered" not in [finding.code for finding in found]

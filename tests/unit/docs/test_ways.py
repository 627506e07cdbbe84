# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The audit finds each cause in docs/troubleshoot.md for which a Service does not answer.

Each cause is made in a cluster that is healthy otherwise, for both families where they can differ.
"""

from __future__ import annotations

import re
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from purelb.core.allocation.refusals import RefusalReason
from purelb.core.audit.page import page_of
from purelb.core.audit.report import report_dict
from purelb.core.election.draining import Taint
from purelb.core.election.election import rank
from purelb.core.election.members import PROXY_RULE
from purelb.core.leadership.locks import LockState
from purelb.core.model import Announcement, Link, PoolType
from purelb.core.names import DRAINING_TAINTS
from purelb.core.node.configuration import NodeConfig
from tests.support.core.audited_cluster import (
    DUMMY,
    NODES,
    NOW,
    AuditedCluster,
    eth0,
    held,
    mac,
    node_view,
)
from tests.support.core.snapshots import GROUP, NET4, REMOTE_GROUP, VIP4, VIP6
from tests.support.docs.pages import read
from tests.unit.docs.test_reference import rows

PAGE = read("docs/troubleshoot.md")
STRANGER = b"\x06\0\0\0\0\1"
FAMILIES = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])


def served(vip, **more):
    """Return a cluster with one Service in order, its winner and the next node."""
    cluster = AuditedCluster()
    cluster.serve(vip, **more)
    winner, second, _third = rank(NODES, vip)
    cluster.answered(vip, mac(winner))
    return cluster, winner, second


def silenced(cluster, winner):
    """Let the winner neither announce nor hold anything."""
    (one,) = cluster.services
    cluster.services = [replace(one, announcing={})]
    cluster.only(winner)
    cluster.evidence = replace(cluster.evidence, answers=())
    return cluster


def refused(vip):
    cluster, _winner, _second = served(vip)
    cluster.ask(group="nowhere", families=(vip.version,))
    return cluster


def group_not_ready(vip):
    cluster = AuditedCluster()
    cluster.evidence = replace(cluster.evidence, groups=())
    cluster.unready = {"default": "InvalidSpec: v4pool: subnet is missing"}
    cluster.ask(families=(vip.version,))
    return cluster


def leaderless(vip):
    cluster, _winner, _second = served(vip)
    cluster.lock = replace(cluster.lock, state=LockState.EXPIRED)
    cluster.ask(families=(vip.version,))
    return cluster


def hanging_allocator(vip):
    cluster, _winner, _second = served(vip)
    cluster.ask(families=(vip.version,))
    return cluster


def without_agents(vip):
    cluster, winner, _second = served(vip)
    for node in NODES:
        cluster.fail(node, f"Pod agent-{node}, container lbnodeagent: ErrImagePull: no such image")
    return silenced(cluster, winner)


def without_renewals(vip):
    cluster, winner, _second = served(vip)
    for node, lease in cluster.leases.items():
        cluster.leases[node] = replace(lease, renew_time=NOW - 99)
    return silenced(cluster, winner)


def without_interfaces(vip):
    cluster, winner, _second = served(vip)
    for node, lease in cluster.leases.items():
        cluster.leases[node] = replace(lease, subnets=())
    return silenced(cluster, winner)


def in_no_subnet(vip):
    cluster, winner, _second = served(vip)
    far = ip_network("10.9.0.0/16"), ip_network("fd99::/64")
    for node, lease in cluster.leases.items():
        cluster.leases[node] = replace(lease, subnets=far)
    return silenced(cluster, winner)


def drained(vip):
    cluster, winner, _second = served(vip)
    taint = Taint(DRAINING_TAINTS[0], "", "NoSchedule")
    for node in NODES:
        cluster.nodes[node] = node_view(node, taints=(taint,), tainted=NOW - 2 * 3600)
    return silenced(cluster, winner)


def without_service_proxy(vip):
    cluster, winner, _second = served(vip)
    for node, lease in cluster.leases.items():
        is_winner = node == winner
        far = ip_network("10.9.0.0/16"), ip_network("fd99::/64")
        cluster.leases[node] = replace(
            lease,
            subnets=lease.subnets if is_winner else far,
            rules=(PROXY_RULE,),
            service_proxy="ill" if is_winner else "well",
        )
    return cluster


def without_endpoint(vip):
    cluster = AuditedCluster()
    cluster.evidence = replace(cluster.evidence, groups=(REMOTE_GROUP,))
    cluster.serve(vip, PoolType.REMOTE, is_external_local=True, announcing={})
    for node in NODES:
        cluster.only(node)
    return cluster


def hanging_agent(vip):
    cluster, winner, _second = served(vip)
    return silenced(cluster, winner)


def without_dummy(vip):
    cluster = AuditedCluster()
    cluster.evidence = replace(cluster.evidence, groups=(REMOTE_GROUP,))
    cluster.serve(vip, PoolType.REMOTE, announcing={})
    for node in NODES:
        cluster.only(node)
        cluster.links[node] = (eth0(node),)
    return cluster


def outside_pools(vip):
    cluster, winner, _second = served(vip)
    cluster.evidence = replace(cluster.evidence, groups=(replace(GROUP, ranges=()),))
    return silenced(cluster, winner)


def taken_twice(vip):
    cluster, _winner, _second = served(vip)
    (one,) = cluster.services
    cluster.services = [one, replace(one, key=replace(one.key, name="other"))]
    return cluster


def overwritten(vip):
    cluster, _winner, _second = served(vip)
    (one,) = cluster.services
    theirs = {4: ip_address("192.0.2.1"), 6: ip_address("2001:db8::1")}[vip.version]
    cluster.services = [replace(one, addresses=(theirs,), address_writers=frozenset({"k3s"}))]
    return cluster


def of_two_versions(vip):
    cluster, winner, second = served(vip)
    pods = [
        replace(pod, image="old:1") if pod.node == second else pod for pod in cluster.agents.pods
    ]
    cluster.agents = replace(cluster.agents, pods=tuple(pods))
    (one,) = cluster.services
    both = tuple(Announcement(node, "eth0", vip) for node in (winner, second))
    cluster.services = [replace(one, announcing={vip.version: both})]
    cluster.put(second, held(vip))
    return cluster


def nodes_own(vip):
    cluster, winner, _second = served(vip)
    cluster.evidence = replace(cluster.evidence, known=frozenset({vip}))
    return silenced(cluster, winner)


def added_on_the_winner(vip):
    cluster, winner, _second = served(vip)
    silenced(cluster, winner)
    cluster.only(winner, held(vip, seconds=None, protocol=0))
    # A kernel that shows who put an address there.
    cluster.put(winner, held(GROUP.ranges[0].first + 5))
    return cluster


def added_on_another_node(vip):
    cluster, winner, second = served(vip)
    cluster.put(second, held(vip, seconds=None, protocol=0))
    cluster.evidence = replace(cluster.evidence, answers=())
    cluster.answered(vip, mac(winner), mac(second))
    return cluster


def on_another_host(vip):
    cluster, winner, _second = served(vip)
    cluster.leases[winner] = replace(cluster.leases[winner], duplicates=(vip,))
    cluster.evidence = replace(cluster.evidence, answers=())
    cluster.answered(vip, mac(winner), STRANGER)
    return cluster


def on_another_host_first(_vip):
    cluster, winner, _second = served(VIP6)
    cluster.leases[winner] = replace(cluster.leases[winner], duplicates=(VIP6,))
    cluster.only(winner, held(VIP6, tentative=True, dad_failed=True))
    cluster.evidence = replace(cluster.evidence, answers=())
    cluster.answered(VIP6, STRANGER)
    return cluster


def moved_interface(vip):
    cluster, winner, _second = served(vip)
    net = NET4 if vip.version == 4 else ip_network("fd28::/64")
    cluster.held[winner] = tuple(a for a in cluster.held[winner] if a.address not in net)
    return cluster


def on_the_wrong_interface(vip):
    cluster, winner, _second = served(vip)
    other = Link(3, "eth1", mac(winner))
    cluster.links[winner] = (eth0(winner), other, DUMMY)
    cluster.only(winner, held(vip, link=3))
    return cluster


def on_an_interface_that_is_down(vip):
    cluster, winner, _second = served(vip)
    config = NodeConfig("all", local_interface="none", interfaces=("eth0",))
    cluster.evidence = replace(cluster.evidence, configs=(config,))
    cluster.links[winner] = (replace(eth0(winner), is_up=False), DUMMY)
    return cluster


def filtered(vip):
    cluster, _winner, _second = served(vip)
    cluster.evidence = replace(cluster.evidence, answers=())
    cluster.answered(vip)
    return cluster


WAYS = {
    "the allocator refuses an address": refused,
    "the ServiceGroup is not ready": group_not_ready,
    "no allocator leads": leaderless,
    "the leading allocator hangs": hanging_allocator,
    "no node of the subnet has an agent": without_agents,
    "no node of the subnet renews its Lease": without_renewals,
    "the LBNodeAgent is invalid or selects no node": without_interfaces,
    "no node is in the subnet of the address": in_no_subnet,
    "every node of the subnet has a draining taint": drained,
    "kube-proxy of the winner is dead, and no other node is in the subnet": without_service_proxy,
    "a remote address accepts only local traffic, and no endpoint is ready": without_endpoint,
    "the agent of the winner hangs, or the address is a gateway": hanging_agent,
    "the winner cannot create its dummy interface": without_dummy,
    "no pool contains the address, and no running agent knew it in a pool": outside_pools,
    "another Service has the address": taken_twice,
    "another controller writes the status of the Service": overwritten,
    "agents of two versions disagree": of_two_versions,
    "the address is a node's own address": nodes_own,
    "the address was added manually on the winner": added_on_the_winner,
    "the address was added manually on another node": added_on_another_node,
    "a host outside the cluster has the address": on_another_host,
    "a host outside the cluster had the IPv6 address first": on_another_host_first,
    "the winner no longer has an interface in the subnet": moved_interface,
    "the address is on the wrong interface": on_the_wrong_interface,
    "the interface that an LBNodeAgent names is down": on_an_interface_that_is_down,
    "a switch or a filter drops ARP and neighbor solicitations": filtered,
}
ROWS = {row[0]: row[1:] for row in rows("Causes and their findings", PAGE)}


def codes(cell):
    return set(re.findall(r"`(\w+)`", cell))


def test_there_is_a_test_of_each_way():
    assert list(WAYS) == list(ROWS)


@FAMILIES
@pytest.mark.parametrize("what", WAYS)
def test_each_way_is_found_as_the_table_says(what, vip):
    of_audit, of_verify = map(codes, ROWS[what])
    cluster = WAYS[what](vip)
    audited = {code for _severity, code in cluster.audited()}
    assert of_audit <= audited
    assert of_verify.isdisjoint(audited)
    assert of_audit | of_verify <= {code for _severity, code in cluster.found()}


@FAMILIES
@pytest.mark.parametrize("what", [what for what, (audit, _verify) in ROWS.items() if audit])
def test_no_way_that_the_audit_finds_is_shown_as_nothing_wrong(what, vip):
    seen = {**report_dict(WAYS[what](vip).audit()), "leader_locks": []}
    assert page_of(seen, ()).verdict != "nothing is wrong"


def one_address(vip):
    """Return the group with this address alone."""
    (found,) = (r for r in GROUP.ranges if r.first.version == vip.version)
    return replace(GROUP, ranges=(replace(found, last=found.first),))


FENCED = replace(GROUP, namespaces=frozenset({"shop"}), enforces=True)
TWO = (
    replace(GROUP, namespaces=frozenset({"default"}), enforces=True),
    replace(GROUP, name="other", ranges=(), namespaces=frozenset({"default"})),
)
HTTP = frozenset({("TCP", 80)})
REFUSALS = {
    "exhausted": ({}, one_address),
    "unknown_pool": ({"group": "nowhere"}, None),
    "invalid_address": ({"malformed": ("x",)}, None),
    "node_address": ({"explicit": 1}, None),
    "port_conflict": ({"explicit": 0, "sharing_key": "k", "ports": HTTP}, None),
    "sharing_key_conflict": ({"explicit": 0}, None),
    "namespace_denied": ({}, lambda _vip: FENCED),
    "ambiguous_namespace_default": ({}, lambda _vip: TWO),
    "multipool_refused": (
        {"multi_pool": True},
        lambda _vip: replace(GROUP, balance_pools=True),
    ),
    "multipool_pool_mismatch": ({"explicit": (2, 3), "multi_pool": True}, None),
    "subnet_deprecated": ({}, None),
}


@FAMILIES
@pytest.mark.parametrize("reason", REFUSALS)
def test_the_audit_finds_each_refusal(reason, vip):
    asks, groups = REFUSALS[reason]
    cluster = AuditedCluster()
    cluster.serve(vip, sharing_key="k", ports=HTTP)
    cluster.nodes["n1"] = node_view("n1", addresses=frozenset({vip + 1}))
    if groups:
        made = groups(vip)
        made = made if isinstance(made, tuple) else (made,)
        cluster.evidence = replace(cluster.evidence, groups=made)
    if reason == "subnet_deprecated":
        leases = cluster.leases.items()
        cluster.leases = {n: replace(lease, deprecated=lease.subnets) for n, lease in leases}
    offsets = asks.get("explicit", ())
    offsets = offsets if isinstance(offsets, tuple) else (offsets,)
    explicit = tuple(vip + offset for offset in offsets)
    cluster.ask(families=(vip.version,), **{**asks, "explicit": explicit})
    (text,) = (f.message for f in cluster.audit().findings if f.object == "Service default/new")
    assert text.startswith(f"has no address: {reason}: ")


def test_all_refusals_of_the_allocator_alone_are_made():
    # An IPAM's own refusal is no decision of the allocator: see test_installation.
    assert {*REFUSALS, "ipam_failed"} == {reason.value for reason in RefusalReason}

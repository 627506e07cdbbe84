# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from purelb.core.audit.audit import audit
from purelb.core.audit.page import page_of
from purelb.core.audit.page_rows import LockRow, Mark, SubnetColumn
from purelb.core.audit.report import report_dict
from purelb.core.election.draining import NodeMarks
from purelb.core.election.election import rank
from purelb.core.election.members import EXCLUDE_RULE, PROXY_RULE
from purelb.core.leadership.locks import LockState, lock_dict
from purelb.core.model import Announcement, Lease, Outage, PoolType
from purelb.core.names import DRAINING_TAINTS, EXCLUDE_LABEL
from tests.support.core.audited_cluster import AuditedCluster, node_view
from tests.support.core.snapshots import NET4, NET6, VIP4, VIP6, service

NOW = 1_700_000_000.0
NODES = ("n1", "n2", "n3")
BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])


def lease(node, *, age=2.0, **more):
    made = Lease(node, (NET4, NET6), holder=node, renew_time=NOW - age, node_uid=f"{node}-uid")
    return replace(made, **more)


LEASES = tuple(map(lease, NODES))


def announced(vip, *nodes, **more):
    entries = tuple(Announcement(node, "eth0", vip) for node in nodes)
    return service(addresses=[vip], announcing={vip.version: entries}, **more)


def group(name="default", kind="local", **pools):
    return {"metadata": {"namespace": "purelb-system", "name": name}, "spec": {kind: pools}}


def pool(first_to_last, subnet):
    return {"pool": first_to_last, "subnet": subnet}


def page(*services, leases=LEASES, groups=(), marked=None, **more):
    seen = report_dict(audit(leases, services, wall_time=NOW, marked=marked))
    live = [{"node": one["node"], "state": "live", "reason": ""} for one in seen["leases"]]
    return page_of({**seen, "nodes": live, **more}, groups)


class TestVerdict:
    def test_is_that_nothing_is_wrong_where_nothing_is(self):
        winner = rank(NODES, VIP4)[0]
        seen = page(announced(VIP4, winner))
        assert (seen.verdict, seen.mark, seen.live) == ("nothing is wrong", Mark.OK, 3)

    def test_counts_errors_before_warnings(self):
        seen = page(announced(VIP4), announced(VIP6), leases=(*LEASES, lease("n4", age=60)))
        assert (seen.verdict, seen.mark) == ("2 errors, 1 warning", Mark.ERROR)
        assert (seen.errors, seen.warnings) == (2, 1)

    def test_of_warnings_alone_is_no_error(self):
        seen = page(leases=(lease("n4", age=60),))
        assert (seen.verdict, seen.mark) == ("1 warning", Mark.WARNING)


@pytest.mark.parametrize(
    ("change", "state", "age", "share", "mark"),
    [
        ({}, "live", "2.0 s of 10 s", 20, Mark.OK),
        ({"renew_time": NOW - 60}, "expired", "60.0 s of 10 s", 100, Mark.WARNING),
        ({"renew_time": None}, "never renewed", "never of 10 s", 0, Mark.WARNING),
        ({"renew_time": NOW + 60}, "live, from the future", "-60.0 s of 10 s", 0, Mark.WARNING),
        ({"duration": 0.0}, "expired", "2.0 s of 0 s", 100, Mark.WARNING),
    ],
    ids=["live", "expired", "never", "future", "without-duration"],
)
def test_a_node_has_the_state_and_the_age_of_its_lease(change, state, age, share, mark):
    (row,) = page(leases=[replace(lease("n1"), **change)]).nodes
    assert (row.state, row.age, row.share, row.mark) == (state, age, share, mark)


def test_node_row_has_its_wins_and_announcements():
    winner, second, _third = rank(NODES, VIP4)
    rows = {row.name: row for row in page(announced(VIP4, second)).nodes}
    assert (rows[winner].wins, rows[winner].holds) == (1, 0)
    assert (rows[second].wins, rows[second].holds) == (0, 1)


def test_node_row_has_its_outage():
    (row,) = page(leases=[lease("n1", outage=Outage(NOW - 180, NOW))]).nodes
    assert row.outage == "180 s until 2023-11-14T22:13:20Z"
    assert page().nodes[0].outage == ""


class TestMatrix:
    def test_has_a_column_for_each_subnet_in_order(self):
        other = ip_network("10.0.0.0/8")
        seen = page(
            announced(VIP4), announced(VIP6), leases=[lease("n1", subnets=(NET6, NET4, other))]
        )
        assert seen.subnets == (
            SubnetColumn("10.0.0.0/8", 1, 0),
            SubnetColumn(str(NET4), 1, 1),
            SubnetColumn(str(NET6), 1, 1),
        )

    def test_cells_distinguish_candidates_absent_and_outside(self):
        leases = [
            lease("n1"),
            lease("n2", age=60),
            lease("n3"),
            lease("n4", subnets=(NET6,)),
        ]
        seen = page(leases=leases, marked={"n3": NodeMarks("n3-uid", DRAINING_TAINTS[0])})
        assert {row.node: row.cells for row in seen.matrix} == {
            "n1": ("candidate", "candidate"),
            "n2": ("absent", "absent"),
            "n3": ("absent", "absent"),
            "n4": ("", "candidate"),
        }
        assert [column.candidates for column in seen.subnets] == [1, 2]
        assert seen.nodes[2].state == "live, draining"

    def test_a_node_of_a_worse_standing_is_no_candidate_and_says_why(self):
        rules = (EXCLUDE_RULE, PROXY_RULE)
        states = {"n1": "well", "n2": "ill", "n3": "well"}
        leases = [lease(n, rules=rules, service_proxy=state) for n, state in states.items()]
        marked = {"n3": NodeMarks("n3-uid", is_excluded=True)}
        seen = page(leases=leases, marked=marked)
        assert [row.cells[0] for row in seen.matrix] == ["candidate", "absent", "absent"]
        assert [node.state for node in seen.nodes] == [
            "live",
            "live, kube-proxy down",
            "live, excluded by its label",
        ]


def test_of_many_candidates_few_are_named_and_all_counted():
    many = [f"n{i}" for i in range(9)]
    (row,) = page(announced(VIP4), leases=list(map(lease, many))).vips
    assert row.after == (*rank(many, VIP4)[1:4], "and 5 more")


@BOTH
class TestAddressRow:
    def test_is_as_it_should_be_where_the_winner_announces_it(self, vip):
        winner, *after = rank(NODES, vip)
        (row,) = page(announced(vip, winner)).vips
        assert (row.winner, row.holders, row.after) == (winner, (f"{winner} (eth0)",), tuple(after))
        assert (row.state, row.mark) == ("as it should be", Mark.OK)

    def test_has_the_findings_that_are_about_it(self, vip):
        _winner, second, _third = rank(NODES, vip)
        (row,) = page(announced(vip, second)).vips
        assert (row.state, row.mark) == ("notAnnounced, wrongAnnouncer", Mark.ERROR)

    def test_of_two_services_has_that_finding(self, vip):
        one = announced(vip, rank(NODES, vip)[0])
        (row,) = page(one, replace(one, key=replace(one.key, name="other"))).vips
        assert (row.state, row.services) == ("addressTwice", ("default/other", "default/web"))

    def test_without_a_winner_shows_no_node(self, vip):
        (row,) = page(announced(vip), leases=()).vips
        assert (row.winner, row.holders) == ("no node", ())

    def test_names_the_pool_that_holds_it(self, vip):
        here = {"local": {f"v{vip.version}pool": pool(f"{vip}-{vip + 1}", f"{vip}/24")}}
        there = group("there", v4pool=pool("10.0.0.1-10.0.0.2", "10.0.0.0/24"))
        groups = [there, {**group("here"), "spec": here}]
        assert page(announced(vip), groups=groups).vips[0].pool == "purelb-system/here"
        assert page(announced(vip), groups=[there]).vips[0].pool == "in no pool"


class TestRemoteAddress:
    def test_belongs_to_all_nodes_and_has_no_next_one(self):
        many = [f"n{i}" for i in range(6)]
        remote = announced(VIP4, *many, pool_type=PoolType.REMOTE)
        (row,) = page(remote, leases=list(map(lease, many))).vips
        assert (row.winner, row.after) == ("all of 6 nodes", ())
        assert row.holders == ("n0 (eth0)", "n1 (eth0)", "n2 (eth0)", "and 3 more")

    def test_on_one_node_shows_the_singular(self):
        remote = announced(VIP4, "n1", pool_type=PoolType.REMOTE)
        assert page(remote, leases=[lease("n1")]).vips[0].winner == "all of 1 node"

    def test_without_a_node_shows_no_node(self):
        remote = announced(VIP4, pool_type=PoolType.REMOTE)
        assert page(remote, leases=()).vips[0].winner == "no node"


class TestPool:
    @pytest.mark.parametrize(
        ("used", "share", "state", "mark"),
        [
            (0, 0, "", Mark.OK),
            (8, 80, "", Mark.OK),
            (9, 90, "nearly full", Mark.WARNING),
            (10, 100, "full", Mark.WARNING),
        ],
    )
    @pytest.mark.parametrize("first", ["172.28.1.100", "fd28::100"], ids=["v4", "v6"])
    def test_shows_its_use(self, first, used, share, state, mark):
        start = ip_address(first)
        services = [
            replace(announced(start + i), key=replace(service().key, name=f"web-{i}"))
            for i in range(used)
        ]
        pools = {f"v{start.version}pool": pool(f"{start}-{start + 9}", f"{start}/24")}
        (row,) = page(*services, groups=[group(**pools)]).pools
        assert (row.used, row.size, row.share) == (used, "10", share)
        assert (row.state, row.mark) == (state, mark)

    def test_has_a_row_for_each_range(self):
        pools = {
            "v4pool": pool("172.28.1.1-172.28.1.9", "172.28.1.0/24"),
            "v6pool": pool("fd28::/64", "fd28::/64"),
        }
        rows = page(groups=[group(kind="remote", **pools)]).pools
        assert [(row.family, row.range, row.size) for row in rows] == [
            ("IPv4", "172.28.1.1-172.28.1.9", "9"),
            ("IPv6", "fd28::-fd28::ffff:ffff:ffff:ffff", "2^64"),
        ]
        assert {row.pool_type for row in rows} == {"remote"}

    def test_large_size_is_rounded(self):
        pools = {"v6pool": pool("fd28::1-fd28::ffff:ffff:ffff:ffff", "fd28::/64")}
        assert page(groups=[group(**pools)]).pools[0].size == "1.8e+19"

    def test_invalid_group_shows_the_reason(self):
        (row,) = page(groups=[group(v4pool={"pool": "172.28.1.9"})]).pools
        assert (row.group, row.mark) == ("purelb-system/default", Mark.WARNING)
        assert "subnet is missing" in row.problem

    def test_group_without_ranges_is_labelled(self):
        (row,) = page(groups=[group(skipIPv6DAD=True)]).pools
        assert (row.problem, row.mark) == ("it has no ranges of its own", Mark.OK)


LOCK = {
    "kind": "Lease",
    "namespace": "purelb-system",
    "name": "purelb-allocator",
    "holder": "allocator-x",
    "state": "held",
    "duration": 15.0,
    "age": 3.0,
    "held_for": 86461.2,
    "transitions": 2,
}
FREE = {**LOCK, "holder": "", "state": "released", "age": None, "held_for": None}
TITLE = "Lease purelb-system/purelb-allocator"


@pytest.mark.parametrize(
    ("lock", "row"),
    [
        (LOCK, ("allocator-x", Mark.OK, "held", "3.0 s of 15 s", 20, "1 day, 0:01:01", 2)),
        (FREE, ("no holder", Mark.OK, "released", "never of 15 s", 0, "", 2)),
    ],
    ids=["held", "released"],
)
def test_a_leaders_lock_is_shown_where_there_is_one(lock, row):
    assert page(leader_locks=[lock]).locks == (LockRow(TITLE, *row),)
    assert page().locks == ()


def test_a_lock_has_the_findings_that_are_about_it():
    finding = {"severity": "warning", "code": "leaderExpired", "object": TITLE}
    (row,) = page(leader_locks=[LOCK], findings=[finding]).locks
    assert row.mark is Mark.WARNING


def test_the_allocators_lock_is_marked_if_none_leads():
    cluster = AuditedCluster()
    cluster.lock = replace(cluster.lock, state=LockState.EXPIRED)
    seen = {**report_dict(cluster.audit()), "leader_locks": [lock_dict(cluster.lock)]}
    (row,) = page_of(seen, ()).locks
    assert (row.state, row.mark) == ("expired", Mark.ERROR)


class TestNodes:
    def shown(self, cluster):
        seen = {**report_dict(cluster.audit()), "leader_locks": []}
        made = page_of(seen, ())
        return made, {row.name: row for row in made.nodes}

    def test_are_counted_by_the_nodes_of_the_cluster(self):
        cluster = AuditedCluster()
        cluster.fail("n3", "Pod agent-n3: Unschedulable")
        made, shown = self.shown(cluster)
        assert (made.live, made.expected, made.verdict) == (2, 3, "1 warning")
        row = shown["n3"]
        assert (row.state, row.reason) == ("no Lease", "Pod agent-n3: Unschedulable")
        assert (row.mark, row.age, row.share, row.subnets) == (Mark.WARNING, "", 0, ())

    def test_that_are_meant_to_have_no_agent_are_not_expected(self):
        cluster = AuditedCluster()
        cluster.nodes["control"] = node_view("control", labels={EXCLUDE_LABEL: ""})
        made, shown = self.shown(cluster)
        assert (made.live, made.expected, made.verdict) == (3, 3, "nothing is wrong")
        assert (shown["control"].state, shown["control"].mark) == ("exempt", Mark.OK)

    def test_that_are_excluded_are_marked_though_the_finding_is_about_the_daemon_set(self):
        cluster = AuditedCluster()
        cluster.nodes["w"] = node_view("w", labels={})
        made, shown = self.shown(cluster)
        assert (made.live, made.expected) == (3, 4)
        assert (shown["w"].state, shown["w"].mark) == ("no agent", Mark.WARNING)
        assert shown["w"].reason == "its nodeSelector wants os=linux"

    def test_that_are_gone_are_shown_with_their_lease(self):
        cluster = AuditedCluster()
        del cluster.nodes["n3"]
        _made, shown = self.shown(cluster)
        assert (shown["n3"].state, shown["n3"].reason) == ("live", "there is no such Node")


def test_a_pool_of_a_group_that_is_not_ready_is_marked():
    body = group(v4pool=pool("172.28.1.220-172.28.1.229", "172.28.1.0/24"))
    cluster = AuditedCluster()
    cluster.unready = {"default": "PoolOverlaps: m"}
    seen = {**report_dict(cluster.audit()), "leader_locks": []}
    (row,) = page_of(seen, [body]).pools
    assert (row.mark, row.state) == (Mark.WARNING, "not Ready")

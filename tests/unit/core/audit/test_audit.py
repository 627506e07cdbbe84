# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest

from purelb.core.audit.audit import audit
from purelb.core.audit.findings import Severity
from purelb.core.audit.report import LeaseState, report_dict
from purelb.core.election.draining import NodeMarks
from purelb.core.election.election import rank
from purelb.core.model import Announcement, Lease, Outage, PoolType
from purelb.core.names import DRAINING_TAINTS, SPOT_TAINT_KEY
from purelb.core.node.annotations import format_announcing, merge_announcing
from tests.support.core.snapshots import NET4, NET6, VIP4, VIP6, service

NOW = 1_700_000_000.0
NODES = ("n1", "n2", "n3")
BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])


def lease(node, *, age=2.0, **more):
    return Lease(node, (NET4, NET6), holder=node, renew_time=NOW - age, **more)


LEASES = tuple(map(lease, NODES))


def announced(vip, *nodes):
    entries = tuple(Announcement(node, "eth0", vip) for node in nodes)
    return service(addresses=[vip], announcing={vip.version: entries})


def codes(leases, *services):
    return [f.code for f in audit(leases, services, wall_time=NOW).findings]


@BOTH
class TestAddresses:
    def test_nothing_is_found_where_the_winner_announces(self, vip):
        assert codes(LEASES, announced(vip, rank(NODES, vip)[0])) == []

    def test_candidates_are_in_order_and_the_winner_is_the_first(self, vip):
        (report,) = audit(LEASES, [announced(vip)], wall_time=NOW).vips
        assert report.ranked == rank(NODES, vip)
        assert report.decision.winner == report.ranked[0]

    def test_of_many_candidates_five_are_named_and_all_are_counted(self, vip):
        many = [lease(f"m{number}") for number in range(30)]
        (one,) = report_dict(audit(many, [announced(vip)], wall_time=NOW))["vips"]
        assert one["candidates"] == rank([m.node for m in many], vip)[:5]
        assert one["candidate_count"] == 30

    def test_a_winner_that_does_not_say_so_is_found(self, vip):
        assert codes(LEASES, announced(vip)) == ["notAnnounced"]

    def test_wrong_announcer_is_found(self, vip):
        winner, second, _third = rank(NODES, vip)
        assert codes(LEASES, announced(vip, winner, second)) == ["wrongAnnouncer"]

    def test_entry_of_a_dead_node_is_found(self, vip):
        winner, *others = rank(NODES, vip)
        leases = [lease(n) for n in (winner, others[0])]
        assert codes(leases, announced(vip, winner, others[1])) == ["staleAnnouncer"]

    def test_an_address_that_no_node_can_have_is_found(self, vip):
        far = [replace(lease, subnets=(ip_network("10.0.0.0/8"),)) for lease in LEASES]
        assert codes(far, announced(vip)) == ["noEligibleNodes"]

    def test_an_address_of_two_services_is_found(self, vip):
        winner = rank(NODES, vip)[0]
        one = announced(vip, winner)
        other = replace(one, key=replace(one.key, name="other"))
        assert codes(LEASES, one, other) == ["addressTwice"]
        shared = [replace(s, sharing_key="k") for s in (one, other)]
        assert codes(LEASES, *shared) == []


class TestRemoteAddress:
    def found(self, *announcing, leases=LEASES, endpoints=None, **more):
        remote = replace(announced(VIP4, *announcing), pool_type=PoolType.REMOTE, **more)
        report = audit(leases, [remote], wall_time=NOW, endpoints=endpoints or {})
        return [(f.severity.value, f.code) for f in report.findings]

    def test_announced_by_every_node_has_no_finding(self):
        assert self.found(*NODES) == []

    def test_is_found_where_a_node_does_not_say_so(self):
        assert self.found("n1", "n2") == [("warning", "notAnnounced")]

    def test_of_many_nodes_names_five_and_counts_all(self):
        remote = replace(announced(VIP4), pool_type=PoolType.REMOTE)
        many = [lease(f"m{number:02}") for number in range(30)]
        (one,) = report_dict(audit(many, [remote], wall_time=NOW))["vips"]
        assert one["candidates"] == [f"m{number:02}" for number in range(5)]
        assert one["candidate_count"] == 30

    def test_announced_by_no_node_is_an_error(self):
        assert self.found() == [("error", "notAnnounced")] * 3

    def test_with_local_traffic_is_expected_only_where_an_endpoint_is_ready(self):
        near = {service().key: frozenset({"n2"})}
        assert self.found("n2", endpoints=near, is_external_local=True) == []
        assert self.found(is_external_local=True) == [("warning", "noLocalEndpoint")]

    def test_that_no_node_may_have_is_found(self):
        assert self.found(leases=[lease("n1", age=60)]) == [
            ("error", "noEligibleNodes"),
            ("warning", "leaseExpired"),
        ]

    def test_entry_of_a_dead_node_is_found(self):
        assert self.found(*NODES, leases=LEASES[:2]) == [("warning", "staleAnnouncer")]


def test_a_drained_node_is_no_candidate():
    winner, second, _third = rank(NODES, VIP4)
    owned = [replace(lease, node_uid=f"{lease.node}-uid") for lease in LEASES]
    drained = {winner: NodeMarks(f"{winner}-uid", DRAINING_TAINTS[0])}
    (report,) = audit(owned, [announced(VIP4, second)], wall_time=NOW, marked=drained).vips
    assert report.decision.winner == second


def test_an_announced_eviction_of_all_nodes_leaves_the_winners():
    drained = {lease.node: NodeMarks(f"{lease.node}-uid", SPOT_TAINT_KEY) for lease in LEASES}
    free = audit(LEASES, [announced(VIP4)], wall_time=NOW).vips
    evicted = audit(LEASES, [announced(VIP4)], wall_time=NOW, marked=drained).vips
    assert [vip.decision for vip in evicted] == [vip.decision for vip in free]


def test_affinity_prefers_a_node_with_a_ready_endpoint():
    last = rank(NODES, VIP6)[2]
    one = replace(announced(VIP6, last), has_affinity=True)
    report = audit(LEASES, [one], wall_time=NOW, endpoints={one.key: frozenset({last})})
    assert report.vips[0].decision.winner == last
    assert report.vips[0].ranked == [last]
    assert report.findings == ()


def test_report_contains_the_outage_of_a_node():
    held = replace(LEASES[0], outage=Outage(NOW - 190, NOW - 10))
    (first, *_rest) = report_dict(audit([held, *LEASES[1:]], [], wall_time=NOW))["leases"]
    assert first["outage"] == {
        "begin": "2023-11-14T22:10:10.000000Z",
        "end": "2023-11-14T22:13:10.000000Z",
        "seconds": 180.0,
    }


@pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
def test_an_address_in_no_pool_is_found_where_the_pools_are_known(vip):
    for groups, found in ((None, []), ((), ["outsidePools"])):
        report = audit(LEASES, [announced(vip)], wall_time=NOW, groups=groups)
        outside = [f for f in report.findings if f.code == "outsidePools"]
        assert [finding.code for finding in outside] == found
        assert all(f.severity is Severity.WARNING for f in outside)


def test_services_of_others_are_not_audited():
    assert (
        audit(LEASES, [replace(announced(VIP4), allocated_by_us=False)], wall_time=NOW).vips == ()
    )


class TestLeases:
    @pytest.mark.parametrize(
        ("age", "state", "live"),
        [
            (0.0, LeaseState.LIVE, True),
            (10.0, LeaseState.LIVE, True),
            (10.1, LeaseState.EXPIRED, False),
            (-10.1, LeaseState.FROM_THE_FUTURE, True),
        ],
    )
    def test_a_lease_is_judged_by_its_age(self, age, state, live):
        (report,) = audit([lease("n1", age=age)], [], wall_time=NOW).leases
        assert (report.state, report.is_live) == (state, live)

    def test_a_lease_that_was_never_renewed_does_not_count(self):
        (report,) = audit([Lease("n1", holder="n1")], [], wall_time=NOW).leases
        assert (report.state, report.age) == (LeaseState.NEVER_RENEWED, None)

    @pytest.mark.parametrize(
        ("change", "code"),
        [
            ({"renew_time": NOW - 99}, "leaseExpired"),
            ({"renew_time": NOW + 99}, "clockAhead"),
            ({"malformed": ("x",)}, "leaseMalformed"),
            ({"holder": "n9"}, "leaseHolder"),
        ],
    )
    def test_faults_of_a_lease_are_found(self, change, code):
        assert codes([replace(lease("n1"), **change)]) == [code]


def test_errors_come_before_warnings():
    far = ip_address("203.0.113.1")
    found = audit([lease("n1", age=99), lease("n2")], [announced(far)], wall_time=NOW).findings
    assert [f.severity.value for f in found] == ["error", "warning"]


def test_findings_about_other_things_come_in_their_order():
    lost = replace(LEASES[0], holder="n9")
    found = audit([lost], [announced(ip_address("203.0.113.1"))], wall_time=NOW)
    other = replace(found.findings[0], code="another")
    codes = [finding.code for finding in found.with_findings([other]).findings]
    assert codes == ["another", "noEligibleNodes", "leaseHolder"]


def test_the_report_is_plain_data_for_ansible():
    report = report_dict(audit(LEASES, [announced(VIP6, "n1")], wall_time=NOW))
    assert report["leases"][0] == {
        "node": "n1",
        "holder": "n1",
        "instance": "",
        "subnets": [str(NET4), str(NET6)],
        "duration": 10.0,
        "age": 2.0,
        "live": True,
        "reason": "live",
        "draining": False,
        "standing": "first",
        "outage": None,
    }
    (vip,) = report["vips"]
    assert (vip["address"], vip["family"], vip["services"]) == (str(VIP6), "IPv6", ["default/web"])
    assert vip["announcing"] == [{"node": "n1", "interface": "eth0"}]


class TestAnnouncingAnnotation:
    def entry(self, node, vip=VIP4):
        return Announcement(node, "eth0", vip)

    def merge(self, current, own, live=NODES, *, alone=True):
        return merge_announcing(current, own, node="n1", live_nodes=frozenset(live), alone=alone)

    def test_an_address_of_every_node_has_an_entry_of_each(self):
        theirs, mine = self.entry("n2"), self.entry("n1")
        assert self.merge([theirs], [mine], alone=False) == (mine, theirs)

    def test_own_entries_replace_own_old_ones(self):
        old, new = self.entry("n1"), self.entry("n1", VIP6)
        assert self.merge([old], [new]) == (new,)

    def test_entries_of_live_peers_for_other_addresses_stay(self):
        theirs, mine = self.entry("n2", VIP6), self.entry("n1")
        assert set(self.merge([theirs], [mine])) == {theirs, mine}

    def test_entry_of_the_former_holder_is_removed(self):
        assert self.merge([self.entry("n2")], [self.entry("n1")]) == (self.entry("n1"),)

    def test_entries_of_dead_nodes_are_removed(self):
        assert self.merge([self.entry("n2", VIP6)], [], live=("n1",)) == ()

    def test_who_is_dead_for_the_others_writes_no_entries_that_they_would_remove(self):
        theirs = self.entry("n2")
        assert self.merge([theirs], [self.entry("n1")], live=("n2",), alone=False) == (theirs,)

    def test_without_knowing_who_is_live_only_own_ones_are_removed(self):
        theirs, mine = self.entry("n2"), self.entry("n1")
        held, lost = self.entry("n1", VIP6), self.entry("n1")
        merged = merge_announcing(
            [theirs, held, lost], [held], node="n1", live_nodes=None, alone=True
        )
        assert merged == (theirs, held)
        assert merge_announcing([theirs], [mine], node="n1", live_nodes=None, alone=True) == (
            theirs,
        )

    def test_text_has_the_format_of_dashboards(self):
        assert format_announcing([self.entry("n1"), self.entry("n2", VIP6)]) == (
            "n1,eth0,172.28.1.220 n2,eth0,fd28::220"
        )

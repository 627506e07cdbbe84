# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""How long addresses may be on no node, as it is judged, and what users see of them."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from purelb.core.node.rtnetlink import IFA_F_TENTATIVE
from simulation.api.way import Reach
from simulation.explore.able import Excuse, State
from simulation.explore.fault import Fault
from simulation.explore.faults import KINDS
from simulation.explore.judge import Judge
from simulation.explore.presence import TAKEOVER, before_outage
from simulation.explore.spans import FOR_EVER, common, longest, note, seconds, without
from simulation.explore.trial import at_work
from simulation.member import ETH0
from simulation.users import change_type

ALL = ("n1", "n2", "n3")
OUTAGE = Fault("outage", 0, 60, ALL)
KILLED = Fault("killed", 1, 4, ("n1",))


def broken(judge, *invariants):
    return [b.text for b in judge.breaches() if b.invariant in invariants]


def an_address(cluster, version=4):
    return next(a for a in cluster.addresses() if a.version == version)


def refuse_all(judge):
    for name in judge.cluster.nodes:
        judge.troubles.reach(f"agent/{name}", Reach.REFUSED)
    judge.troubles.note()


def end_agent(cluster, name):
    """End an agent for good, so that its addresses are on no node when their lifetimes end."""
    cluster.nodes[name].kubelet.end_pod()
    cluster.kill_agent(cluster.nodes[name])


class TestUnheld:
    @pytest.mark.parametrize(
        ("faults", "is_excused"),
        [((OUTAGE,), False), ((OUTAGE, KILLED), True)],
        ids=["undisturbed", "disturbed"],
    )
    def test_in_an_outage_addresses_stay_on_nodes_that_nothing_disturbed(
        self, cluster, in_a_copy, faults, is_excused
    ):
        def work():
            judge = Judge(cluster, faults)
            refuse_all(judge)
            end_agent(cluster, "n1")
            cluster.run(15)
            assert (not broken(judge, "unheld")) is is_excused
            used = judge.presence.excused.get(Excuse.OUTAGE.value, 0)
            assert (used > 3) is is_excused

        in_a_copy(work)

    @pytest.mark.parametrize("faults", [(), (KILLED,)], ids=["without-a-fault", "with-one"])
    def test_time_adds_up_although_something_changes_all_the_time(self, cluster, in_a_copy, faults):
        def work():
            judge = Judge(cluster, faults)
            cluster.power_off(cluster.nodes["n1"])
            for _ in range(40):
                cluster.run(0.5)
                judge.troubles.note()
            assert bool(broken(judge, "unheld")) is not bool(faults)

        in_a_copy(work)

    @pytest.mark.parametrize(("others", "excuse"), [(0, Excuse.SLOW), (1, None), (2, None)])
    def test_slow_writes_are_an_excuse_only_where_those_that_run_are_no_majority(
        self, cluster, in_a_copy, others, excuse
    ):
        def work():
            judge = Judge(cluster)
            for name in cluster.nodes:
                judge.troubles.slow(f"agent/{name}", lambda _method, _kind: (5.0, 0.0))
            for name in ALL[1 + others :]:
                end_agent(cluster, name)
            judge.troubles.note()
            assert judge.troubles.moments[-1].states[0].excuse is excuse

        in_a_copy(work)

    def test_one_quick_node_leaves_no_excuse(self, cluster, in_a_copy):
        def work():
            judge = Judge(cluster)
            judge.troubles.slow("agent/n1", lambda _method, _kind: (5.0, 0.0))
            end_agent(cluster, "n2")
            judge.troubles.note()
            assert judge.troubles.moments[-1].states[0].excuse is None

        in_a_copy(work)


class TestBeforeAnOutage:
    """What excuses addresses that are on no node when it begins; no node can take them in it."""

    DOWN = ((30.0, 40.0), State(Excuse.OUTAGE, members=frozenset({"n1"})))

    @pytest.mark.parametrize(
        ("excuse", "is_cut_off"), [(Excuse.CUT_OFF, True), (None, False)], ids=["all", "some"]
    )
    def test_nodes_of_the_segment_may_have_been_cut_off(self, excuse, is_cut_off):
        before = ((20.0, 29.9), State(excuse, is_split=True, members=frozenset({"n2"})))
        later = ((29.9, 30.0), State(Excuse.OUTAGE, members=frozenset({"n3"})))
        found = before_outage([before, later, self.DOWN])
        assert found == (29.9, True, is_cut_off, frozenset({"n3"}))

    def test_what_was_longer_ago_does_not_count(self):
        cut_off = ((0.0, 10.0), State(Excuse.CUT_OFF, is_split=True))
        whole = ((10.0, 30.0), State())
        assert before_outage([cut_off, whole, self.DOWN])[:2] == (30.0, False)
        assert before_outage([self.DOWN]) == (30.0, False, False, frozenset({"n1"}))


class TestServices:
    def test_a_service_that_gets_no_address(self, cluster, in_a_copy):
        def work():
            judge = Judge(cluster)
            for process in cluster.processes:
                if process.name.startswith("allocator"):
                    process.kill()
            cluster.add_service("late")
            cluster.run(5)
            assert broken(judge, "waited") == [
                "late waited for an address for 5.0 s, from 0.00 s on"
            ]

        in_a_copy(work)

    def test_a_service_that_waited_and_then_got_one(self, cluster, in_a_copy):
        def work():
            judge = Judge(cluster)
            cluster.add_service("late")
            cluster.run(5)
            assert 0 < seconds(judge.given.waited["late"]) < 1
            assert not broken(judge, "waited")

        in_a_copy(work)

    @pytest.mark.parametrize("left", [0, 1], ids=["all", "one-family"])
    def test_a_service_that_loses_an_address(self, cluster, in_a_copy, left):
        def work():
            judge = Judge(cluster)
            service = cluster.find("services", "default", "s0")
            kept = service["status"]["loadBalancer"]["ingress"][:left]
            status = {"loadBalancer": {"ingress": kept}}
            cluster.put("services", "default", "s0", {**service, "status": status})
            assert len(broken(judge, "lost")) == 2 - left

        in_a_copy(work)

    def test_a_service_of_another_type_loses_nothing(self, cluster, in_a_copy):
        def work():
            judge = Judge(cluster)
            for kind in ("ClusterIP", "LoadBalancer"):
                change_type(cluster, "s0", kind)
                cluster.run(5)
            assert len(judge.given.free) == len(judge.given.addresses)
            assert not broken(judge, "lost", "waited", "unheld")

        in_a_copy(work)

    def test_a_restored_store_knows_less(self, cluster, in_a_copy):
        def work():
            backup = cluster.api.backup()
            cluster.add_service("late")
            cluster.run(3)
            judge = Judge(cluster)
            cluster.api.restore(backup)
            cluster.add_service("late")
            cluster.run(60)
            assert not broken(judge, "lost", "waited")

        in_a_copy(work)

    def test_a_service_that_a_restored_store_does_not_have_is_gone(self, cluster, in_a_copy):
        def work():
            backup = cluster.api.backup()
            judge = Judge(cluster)
            cluster.add_service("late")
            cluster.run(3)
            cluster.api.restore(backup)
            cluster.run(60)
            assert not broken(judge, "unheld")

        in_a_copy(work)

    @pytest.mark.parametrize("joins", ["before", "meanwhile"])
    def test_who_joins_in_an_outage_makes_the_others_no_majority(self, cluster, in_a_copy, joins):
        def work():
            judge = Judge(cluster, (OUTAGE, replace(KILLED, nodes=("n1", "n2"))))
            if joins == "meanwhile":
                refuse_all(judge)
            for name in ("new1", "new2"):
                node = cluster.add_node(name)
                judge.history.follow(node)
                cluster.start_agent(node)
            cluster.run(20)
            if joins == "before":
                refuse_all(judge)
            end_agent(cluster, "n3")
            cluster.run(30)
            assert bool(broken(judge, "unheld")) is (joins == "before")

        in_a_copy(work)


class TestWaited:
    @pytest.mark.parametrize("runs", [True, False])
    def test_a_service_waits_if_no_allocator_runs(self, cluster, in_a_copy, runs):
        def work():
            judge = Judge(cluster)
            for process in cluster.allocators.values():
                judge.troubles.freeze(process)
            if not runs:
                judge.troubles.note()
            cluster.add_service("late")
            cluster.run(TAKEOVER + 5)
            for process in cluster.allocators.values():
                process.thaw()
            judge.troubles.note()
            cluster.run(20)
            assert bool(broken(judge, "waited")) is runs

        in_a_copy(work)


class TestHosts:
    def test_each_side_of_a_split_segment_has_a_host(self, cluster, in_a_copy):
        def work():
            judge = Judge(cluster)
            fault = Fault("split", 0, 10, ("n1",))
            judge.troubles.later(0, 10, partial(KINDS["split"].begin, judge.troubles, fault))
            cluster.run(5)
            first, other = cluster.segment.hosts
            for address in cluster.addresses():
                (name,) = cluster.holders(address)
                heard = [cluster.segment.heard_by(host, address) for host in (first, other)]
                assert heard == ([[], [name]] if name == "n1" else [[name], []])
            assert not broken(judge, "unanswered", "known", "twice")
            # The one misses what is announced on the other side, and is told of it later.
            other.learn(address, b"\6\0\0\0\0\1")
            cluster.run(10)
            assert cluster.segment.misleads(other, address)
            assert not broken(judge, "unanswered")

        in_a_copy(work)

    @pytest.mark.parametrize(("seconds", "is_broken"), [(1.9, False), (2.5, True)])
    def test_an_address_for_which_its_node_does_not_answer(
        self, cluster, in_a_copy, seconds, is_broken
    ):
        def work():
            judge = Judge(cluster)
            address = an_address(cluster, 6)
            (name,) = cluster.holders(address)
            kernel, place = cluster.nodes[name].kernel, (ETH0, address)
            kernel.held[place].flags |= IFA_F_TENTATIVE
            kernel.changed(place)
            cluster.run(seconds)
            assert bool(broken(judge, "unanswered")) is is_broken

        in_a_copy(work)

    def test_a_node_that_no_host_reaches_need_not_answer(self, cluster, in_a_copy):
        def work():
            judge = Judge(cluster)
            (name,) = cluster.holders(an_address(cluster))
            cluster.segment.paths.lose(name, cluster.host.name)
            cluster.run(5)
            cluster.segment.paths.heal()
            cluster.run(5)
            assert not broken(judge, "unanswered")
            assert judge.presence.excused["no host reaches the holder"] == pytest.approx(5)

        in_a_copy(work)

    def test_a_host_of_another_segment_does_not_reach_it(self, in_a_copy):
        def work():
            # Of these, `n2` is in a second segment, too.
            with at_work(6, ("n1", "n2")) as cluster:
                judge = Judge(cluster)
                fault = Fault("split", 0, 5, ("n2",))
                judge.troubles.later(0, 5, partial(KINDS["split"].begin, judge.troubles, fault))
                cluster.run(10)
                assert any(cluster.number_of(a) == 1 for a in judge.given.addresses)
                assert not broken(judge, "unanswered")

        in_a_copy(work)

    @pytest.mark.parametrize("version", [4, 6])
    @pytest.mark.parametrize(("seconds", "is_broken"), [(1.9, False), (2.5, True)])
    def test_hosts_that_look_at_a_wrong_node(self, cluster, in_a_copy, version, seconds, is_broken):
        def work():
            judge = Judge(cluster)
            address = an_address(cluster, version)
            wrong = next(
                n for n in cluster.nodes.values() if n.name not in cluster.holders(address)
            )
            # However often its node announces it.
            for _ in range(round(10 * seconds)):
                cluster.host.learn(address, wrong.eth0.mac)
                cluster.run(0.1)
            assert bool(broken(judge, "unanswered")) is is_broken

        in_a_copy(work)

    def test_hosts_are_told_again_some_time_after_two_nodes_have_answered(self, cluster, in_a_copy):
        def work():
            judge = Judge(cluster)
            address = an_address(cluster)
            wrong = next(
                n for n in cluster.nodes.values() if n.name not in cluster.holders(address)
            )
            end_agent(cluster, wrong.name)
            wrong.kernel.fence.clear()
            wrong.kernel.add_address(ETH0, address, 32)
            cluster.run(1)
            cluster.host.learn(address, wrong.eth0.mac)
            wrong.kernel.remove_address((ETH0, address))
            cluster.run(5)
            assert not broken(judge, "unanswered")

        in_a_copy(work)


class TestSpans:
    def test_what_is_left_without_others(self):
        assert without([(0, 10), (20, 30)], [(2, 4), (9, 21), (29, 40)]) == [
            (0, 2),
            (4, 9),
            (21, 29),
        ]
        assert without([(1, 2)], [(0, 5)]) == []

    def test_what_is_common(self):
        assert common([(0, 10), (20, 30)], [(5, 22), (25, 26)]) == [(5, 10), (20, 22), (25, 26)]

    def test_how_long_they_are(self):
        assert seconds([(0, 1.5), (4, 5)]) == 2.5
        assert longest([(0, 1.5), (4, 5)]) == 1.5

    def test_times_in_which_something_is_so(self):
        spans = []
        for now, is_so in ((1, False), (2, True), (3, True), (4, False), (6, True)):
            note(spans, now, is_so=is_so)
        assert spans == [(2, 4), (6, FOR_EVER)]

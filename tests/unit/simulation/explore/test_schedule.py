# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Schedules are drawn from a seed, told as a story, and shrunk to what breaks something."""

from __future__ import annotations

import pytest

from simulation.explore.families import FAMILIES
from simulation.explore.fault import NEW
from simulation.explore.faults import KINDS, told
from simulation.explore.schedule import draw, shrunk, smaller
from simulation.explore.workload import CLUSTERS

# A seed of three nodes and of four faults.
SEED = next(s for s in range(100) if len(draw(s).faults) == 4 and len(draw(s).names) == 3)


def test_a_seed_draws_the_same_schedule_again_and_another_one_differs():
    assert draw(SEED) == draw(SEED)
    assert draw(SEED).faults != draw(SEED + CLUSTERS).faults
    assert draw(SEED).cluster == draw(SEED + CLUSTERS).cluster


def test_every_kind_and_every_size_is_drawn():
    drawn = [draw(seed) for seed in range(500)]
    assert {fault.kind for schedule in drawn for fault in schedule.faults} == set(KINDS)
    assert {len(schedule.names) for schedule in drawn} == {1, 2, 3, 4, 5, 12}
    assert {len(schedule.faults) for schedule in drawn} == {1, 2, 3, 4}


def test_kinds_and_their_number_can_be_chosen():
    schedule = draw(SEED, ["frozen"], count=2)
    assert [fault.kind for fault in schedule.faults] == ["frozen", "frozen"]


def test_kinds_that_came_later_change_only_the_schedules_that_have_them(monkeypatch):
    later = {kind for kind in KINDS if KINDS[kind].is_later}
    drawn = [draw(seed) for seed in range(500)]
    for kind in later:
        monkeypatch.delitem(KINDS, kind)
    others = [schedule for schedule in drawn if not later & {f.kind for f in schedule.faults}]
    assert 0.8 < len(others) / len(drawn) < 1
    assert all(draw(schedule.seed) == schedule for schedule in others)


def test_a_cluster_of_one_node_has_no_faults_of_several():
    alone = [draw(seed) for seed in range(2000) if len(draw(seed).names) == 1]
    kinds = {fault.kind for schedule in alone for fault in schedule.faults}
    assert "killed" in kinds
    assert all(KINDS[kind].hits in (NEW, 0, 1) for kind in kinds)
    assert not draw(10, ["pair", "split", "all-but-one"], count=2).faults


def test_most_schedules_have_kinds_of_one_family_and_some_have_any():
    drawn = [{f.kind for f in draw(seed).faults} for seed in range(500)]
    related = [
        any(kinds <= set(family) for _weight, family in FAMILIES.values()) for kinds in drawn
    ]
    assert 0.8 < sum(related) / len(related) < 1


def test_no_schedule_has_a_kind_twice_that_could_have_another_one():
    drawn = [draw(seed, ["frozen", "outage", "wall"], count=3).faults for seed in range(10)]
    assert all(len({fault.kind for fault in faults}) == 3 for faults in drawn)


@pytest.mark.parametrize("kind", KINDS)
def test_a_fault_is_told_with_its_moment_its_nodes_and_its_end(kind):
    (fault,) = draw(SEED, [kind], count=1).faults
    text = told(fault)
    assert text.startswith(f"at {fault.at:6.2f} s")
    assert bool(fault.seconds) is (" for " in text.split(":", maxsplit=1)[0])
    if "{nodes}" in KINDS[kind].story:
        assert all(name in text for name in fault.nodes)


def test_a_story_has_its_nodes_and_a_line_for_each_fault():
    lines = str(draw(SEED)).splitlines()
    assert lines[0] == "at work: n1, n2, n3"
    assert len(lines) == 5


def test_a_fault_less_leaves_the_others_as_they_were():
    whole = draw(SEED)
    left = whole.without(1)
    assert left.kept == (0, 2, 3)
    assert left.faults == (whole.faults[0], *whole.faults[2:])
    assert whole.only([0, 2, 3]) == left


def test_a_node_less_is_in_no_fault_of_all_nodes():
    schedule = draw(SEED, ["outage"], count=1).of(["n1", "n3"])
    assert schedule.names == ("n1", "n3")
    assert schedule.faults[0].nodes == ("n1", "n3")


def test_no_node_that_a_fault_names_goes():
    schedule = draw(SEED, ["lost"], count=1)
    named = schedule.faults[0].nodes[0]
    assert all(named in less.names for less in smaller(schedule))


def test_what_is_shrunk_has_only_what_it_takes_to_fail():
    whole = draw(SEED, ["frozen", "outage", "wall"], count=6)
    outage = next(n for n, f in enumerate(whole.faults) if f.kind == "outage")
    tried = []

    def fails(schedule):
        tried.append(schedule)
        return outage in schedule.kept and len(schedule.names) > 1

    smallest = shrunk(whole, fails)
    assert smallest.kept == (outage,)
    assert len(smallest.names) == 2
    assert len(tried) < 30

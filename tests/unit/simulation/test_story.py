# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Schedules run in copies of a process that has prepared their clusters."""

from __future__ import annotations

import pytest

from tests.unit.simulation.schedules import story


@pytest.fixture(autouse=True)
def _nothing_prepared(monkeypatch):
    prepared = {}
    monkeypatch.setattr(story, "prepared", prepared)
    yield
    # Else the next test that collects garbage finds their programs.
    for cluster, _history in prepared.values():
        cluster.close()


def test_a_schedule_that_fails_in_a_copy_fails():
    with pytest.raises(pytest.fail.Exception, match="two holders"):
        story.in_a_copy(lambda: story.must(False, "two holders"))


def test_each_copy_begins_with_the_same_cluster():
    def moves_on():
        with story.at_work(names=("n1",), services=0) as (cluster, history):
            assert history.unheld() == 0
            assert cluster.timeline.now == 130_000_000
            cluster.run(5)

    story.in_a_copy(moves_on)
    story.in_a_copy(moves_on)
    assert list(story.prepared) == [story.Start(1, ("n1",), 0)]


def test_the_second_cluster_of_a_copy_is_another_one_of_the_same_start():
    def uses_two():
        for _time in range(2):
            with story.at_work(names=("n1",), services=0) as (cluster, _history):
                assert cluster.timeline.now == 130_000_000
                cluster.run(5)

    story.in_a_copy(uses_two)

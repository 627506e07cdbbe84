# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""One fault breaks nothing: each kind, at many moments, in clusters of two to five nodes."""

from __future__ import annotations

import pytest

from simulation.explore.fault import Fault
from simulation.explore.faults import KINDS
from simulation.explore.schedule import Schedule, draw
from simulation.explore.trial import put_through_alone

# Clusters of three, two, four and five nodes.
CLUSTERS = (0, 1, 3, 5)


def of_each_cluster(kind, number):
    return [draw(48 * number + cluster, [kind], count=1) for cluster in CLUSTERS]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "numbers",
    [range(1), pytest.param(range(1, 5), marks=pytest.mark.thorough)],
    ids=["first", "others"],
)
def test_one_fault_breaks_nothing(kind, numbers, clusters):
    for number in numbers:
        for schedule in of_each_cluster(kind, number):
            found = clusters(schedule).breaches
            assert not found, f"{schedule}\n{found[:3]}"


def test_one_that_stops_a_program_long_after_it_is_judged_when_that_has_settled():
    """It adds an address only when it refreshes one, which is after the end of the fault."""
    fault = Fault("stopped-adding", at=5.716, seconds=30.17, nodes=("n3",))
    schedule = Schedule(41, ("n2", "n3", "n5"), (fault,), kept=(0,))
    assert not put_through_alone(schedule).breaches

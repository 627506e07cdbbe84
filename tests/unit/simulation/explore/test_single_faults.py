# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""One fault breaks nothing: each kind, at many moments, in clusters of two to five nodes."""

from __future__ import annotations

import pytest

from simulation.explore.faults import KINDS
from simulation.explore.schedule import draw

# Clusters of three, two, four and five nodes.
CLUSTERS = (0, 1, 3, 5)
EACH = 5


def single(kind):
    return [
        draw(48 * number + cluster, [kind], count=1)
        for cluster in CLUSTERS
        for number in range(EACH)
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_one_fault_breaks_nothing(kind, clusters):
    for schedule in single(kind):
        found = clusters(schedule)
        assert not found, f"{schedule}\n{found[:3]}"

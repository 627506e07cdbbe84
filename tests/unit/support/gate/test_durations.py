# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from collections import Counter

from tests.support.gate.durations import parts

A, B = [f"unit/test_a.py::test_{n}" for n in range(6)], ["unit/test_b.py::test_b"]


def sizes(found):
    """How many tests each part has."""
    return sorted(Counter(found.values()).values())


def test_short_files_are_whole():
    found = parts([*A, *B], dict.fromkeys([*A, *B], 2.0), whole="labs/")
    assert sizes(found) == [1, 6]
    assert len({found[test] for test in A}) == 1


def test_long_files_are_divided_where_15_seconds_are_full():
    assert sizes(parts(A, dict.fromkeys(A, 10.0), whole="labs/")) == [2, 2, 2]


def test_tests_that_were_never_measured_take_a_tenth_of_the_usual_limit():
    assert sizes(parts(A, {}, whole="labs/")) == [3, 3]


def test_files_that_share_what_they_use_are_whole():
    assert sizes(parts(A, dict.fromkeys(A, 100.0), whole="unit/")) == [6]

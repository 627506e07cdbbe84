# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The pauses between writes that others undo."""

from __future__ import annotations

from itertools import pairwise

from purelb.core.undone import Written, written


def times(count, *, undone_after=0.0):
    """When a thing is written that is undone each time."""
    now, last, found = 0.0, None, []
    for _write in range(count):
        now += undone_after
        now += last.pause("a", now) if last else 0.0
        last = written(last, "a", now, longest=300.0)
        found.append(now)
    return found


def test_the_first_is_repeated_at_once_then_the_pause_doubles_up_to_the_longest():
    pauses = [later - earlier for earlier, later in pairwise(times(13))]
    assert pauses == [0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300]


def test_time_that_has_passed_counts():
    pauses = [later - earlier for earlier, later in pairwise(times(6, undone_after=3.0))]
    assert pauses == [3, 3, 3, 4, 8]


def test_something_else_is_written_at_once():
    last = Written("a", 0.0, 300.0, undone=2)
    assert last.pause("a", 0.0) == 2.0
    assert last.pause("b", 0.0) == 0.0
    assert written(last, "b", 0.0, longest=300.0).undone == 0


def test_what_lasted_twice_as_long_as_the_longest_pause_was_not_undone():
    last = Written("a", 0.0, 300.0, undone=2)
    assert written(last, "a", 599.0, longest=300.0).undone == 3
    assert written(last, "a", 600.0, longest=300.0).undone == 0


def test_a_dispute_without_end_does_not_overflow():
    assert Written("a", 0.0, 300.0, undone=10**6).pause("a", 0.0) == 300.0

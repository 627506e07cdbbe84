# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from tests.support.branches import NOT_COUNTED, check


def report(**files):
    summaries = {
        name: {"summary": {"covered_branches": reached, "num_branches": branches}}
        for name, (reached, branches) in files.items()
    }
    return {"files": summaries}


def test_files_below_the_limit_are_named_with_what_they_reach():
    lines, is_enough = check(report(good=(10, 10), bad=(8, 10), empty=(0, 0)))
    assert [line.split() for line in lines] == [
        ["80.0", "%", "8/10", "bad"],
        ["90.0", "%", "18/20", "of", "all", "branches", "counted"],
    ]
    assert is_enough


def test_all_files_together_decide():
    assert check(report(good=(99, 100), bad=(0, 5)))[1]
    assert not check(report(good=(10, 10), bad=(0, 90)))[1]


@pytest.mark.parametrize("name", NOT_COUNTED)
def test_what_the_lab_tests_is_named_but_not_counted(name):
    lines, is_enough = check(report(**{f"agent/{name}": (0, 1000), "good": (1, 1)}))
    assert lines[0].endswith(f"agent/{name} (not counted)")
    assert is_enough

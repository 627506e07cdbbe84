# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from tests.support.branches import check


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
        ["90.0", "%", "18/20", "of", "all", "branches"],
    ]
    assert is_enough


def test_all_files_together_decide():
    assert check(report(good=(99, 100), bad=(0, 5)))[1]
    assert not check(report(good=(10, 10), bad=(0, 90)))[1]

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The tables: each bug can be made in the code as it is now."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.support import ROOT
from tests.support.mutants.__main__ import chosen, main
from tests.support.mutants.mutant import Mutant, NoMutantError
from tests.support.mutants.tables import MUTANTS
from tests.support.mutants.trial import folder_of_tests


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.bug)
def test_bug_is_one_change_of_the_code_that_still_compiles(mutant):
    text = (ROOT / mutant.path).read_text()
    changed = mutant.text(ROOT)
    assert changed != text
    compile(changed, mutant.path, "exec")
    assert (ROOT / folder_of_tests(mutant.path)).is_dir()


def test_there_are_many_and_no_bug_is_named_or_made_twice():
    assert len(MUTANTS) >= 60
    bugs = Counter(mutant.bug for mutant in MUTANTS)
    changes = Counter((mutant.path, mutant.old, mutant.new) for mutant in MUTANTS)
    assert [found for found, count in (bugs + changes).items() if count > 1] == []


def test_old_text_that_is_not_there_once_is_refused(tmp_path):
    (tmp_path / "a.py").write_text("one = 1\ntwo = 1\n")
    for old in ("1", "three"):
        with pytest.raises(NoMutantError, match=r"a\.py has . times, not once"):
            Mutant("wrong", "a.py", old, "2").make(tmp_path)


def test_numbers_and_words_choose_mutants(capsys):
    first = Mutant("the first", "core/one.py", "1", "2")
    second = Mutant("the second", "core/two.py", "1", "2")
    assert chosen([], (first, second)) == {1: first, 2: second}
    assert chosen(["2"], (first, second)) == {2: second}
    assert chosen(["first", "two.py"], (first, second)) == {1: first, 2: second}
    assert chosen(["third"], (first, second)) == {}
    assert main(["--list", "1"]) == 0
    assert capsys.readouterr().out == f"1: {MUTANTS[0].path}: {MUTANTS[0].bug}\n"


@pytest.mark.parametrize(
    ("path", "folder"),
    [
        ("plugins/module_utils/purelb/core/holding/right.py", "tests/unit/core/holding"),
        ("plugins/module_utils/purelb/core/settings.py", "tests/unit/core"),
        ("agent/purelb_agent/holding/ends.py", "tests/unit/agent/holding"),
    ],
)
def test_tests_of_a_file_are_in_the_folder_of_the_same_name(path, folder):
    assert folder_of_tests(path) == folder

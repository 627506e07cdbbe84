# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""docs/compatibility.md names tests and variants that exist, and says where nothing ran."""

from __future__ import annotations

import re

import pytest

from labkit.topology import VARIANTS
from tests.support.docs.pages import ROOT, read

PAGE = read("docs/compatibility.md")
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("|") and "---" not in line and "what ran" not in line
]
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+(?:\.py)?)(?:::(\w+))?`", PAGE)))


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_named_test_exists(path, name):
    assert (ROOT / path).exists()
    assert not name or f"def {name}(" in (ROOT / path).read_text()


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_row_says_what_ran_or_that_nothing_did(row):
    _what, ran, _note = row
    known = ("all tests", "the suites, `--variant ", "`tests/", "not tried")
    assert ran.startswith(known)


def test_each_variant_of_the_lab_is_in_the_table():
    assert set(re.findall(r"--variant ([a-z-]+)", PAGE)) == {*VARIANTS}

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The agent makes a dummy interface: in a virtual machine, as not every kernel has the type."""

from __future__ import annotations

import json

import pytest

from tests.support import ROOT
from tests.support.lab import virtual_machine
from tests.support.lab.dummy_link_program import ADDRESSES

SECONDS = 150  # boot and program take 6 on an idle machine
pytestmark = [pytest.mark.timeout(SECONDS + 30), pytest.mark.thorough]


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """Return what the program saw, step by step."""
    if reason := virtual_machine.missing():
        pytest.skip(f"no virtual machine: {reason}")
    output = virtual_machine.run(
        tmp_path_factory.mktemp("machine"),
        ROOT / "tests/support/lab/dummy_link_program.py",
        modules=("dummy",),
        seconds=SECONDS,
    )
    lines = [line for line in output.splitlines() if line.startswith("{")]
    assert len(lines) == 1, output
    return json.loads(lines[0])


def test_new_link_is_up_and_marked(seen):
    assert seen["before"] is None
    assert seen["made"] | {"index": 0} == {
        "index": 0, "is_up": True, "alias": "purelb", "addresses": []
    }  # fmt: skip


def test_link_takes_addresses_of_both_families(seen):
    assert seen["used"] == seen["made"] | {"addresses": sorted(ADDRESSES)}


def test_adding_link_again_changes_nothing(seen):
    assert seen["made again"] == seen["used"]


def test_existing_link_is_not_marked(seen):
    assert seen["another program's"]["alias"] == ""


def test_removing_link_twice_succeeds(seen):
    assert seen["removed"] is None

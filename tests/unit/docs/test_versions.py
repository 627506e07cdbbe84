# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""docs/versions.md lists the releases of ansible-core that a test runs, and nothing else."""

from __future__ import annotations

import re

import yaml

from tests.support import ROOT
from tests.support.docs.pages import read
from tests.support.environments import DEBIAN, SUITES, requirements

PAGE = read("docs/versions.md")
ROWS = re.findall(r"^\| (2\.\d+) \| [^|]+ \| Debian (\d+), [^|]+ \|$", PAGE, re.MULTILINE)


def test_table_is_what_the_test_runs():
    assert [(core, str(DEBIAN[suite])) for core, suite in SUITES.items()] == ROWS


def test_the_oldest_is_what_the_collection_requires():
    required = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["requires_ansible"]
    assert required == f">={min(SUITES)}.0"


def test_all_other_tests_run_with_the_one_that_the_page_names():
    (core,) = re.findall(r"All other tests run with (2\.\d+)\.", PAGE)
    assert requirements()["ansible-core"].startswith(f"{core}.")

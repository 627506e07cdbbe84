# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The order of the fixtures of the integration tests, by pytest's own plan; no test runs."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support import ROOT

TEST = "tests/integration/announcing/test_serving.py::test_released_address_is_allocated_again"


@pytest.mark.timeout(60)
def test_logs_are_watched_from_before_the_start_of_a_test_until_after_its_repair():
    options = ["--setup-plan", "--quiet", "-p", "no:cacheprovider"]
    plan = subprocess.run(
        [sys.executable, "-m", "pytest", *options, TEST],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = re.findall(r"(SETUP|TEARDOWN) +F (\w+)", plan.stdout)
    order = ["_no_unexpected_errors", "_healthy_cluster", "make_service"]
    assert found == [
        *(("SETUP", name) for name in order),
        *(("TEARDOWN", name) for name in reversed(order)),
    ]

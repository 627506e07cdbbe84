# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""leaking.py has tests that leave something behind; here is what pytest reports of each."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.support import ROOT

# The fixture runs a pytest of its own, which takes 7 s on a busy machine.
pytestmark = pytest.mark.timeout(60)
LEAKS = {
    "task": "task renewer still runs",
    "unread_exception": "no one read the exception of task reporter: OSError",
    "failed_callback": "Exception in callback",
    "transport": "the loop still watches file",
    "reader": "the loop still watches file",
    "socket": r"socket:\[\d+\] is still open",
    "socket_without_a_loop": r"the test left open: \['socket:",
    "task_of_a_fixture": "task watcher still runs",
}


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    """The errors at the end of each leaking test, by class and name."""
    report = tmp_path_factory.mktemp("leaks") / "report.xml"
    quiet = ["-q", "-p", "no:cacheprovider", "-p", "no:unraisableexception", "-W", "ignore"]
    leaking = Path(__file__).with_name("leaking.py")
    command = [sys.executable, "-m", "pytest", *quiet, f"--junitxml={report}", str(leaking)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert report.exists(), ran.stdout + ran.stderr
    found = {}
    for case in ET.parse(report).iter("testcase"):  # noqa: S314 - pytest's own report
        name = case.get("classname").rpartition(".")[2], case.get("name").removeprefix("test_")
        assert case.find("failure") is None, name
        texts = [error.get("message") for error in case.iter("error")]
        found.setdefault(name, []).extend(texts)
    return found


@pytest.mark.parametrize("time", ["TestVirtual", "TestReal"], ids=["virtual", "real"])
class TestLeaks:
    def test_a_test_that_cleans_up_has_no_error(self, errors, time):
        assert errors[time, "nothing"] == []

    @pytest.mark.parametrize(("name", "words"), LEAKS.items(), ids=LEAKS)
    def test_a_test_that_leaves_something_has_an_error_that_names_it(
        self, errors, time, name, words
    ):
        (error,) = errors[time, name]
        assert re.search(words, error)

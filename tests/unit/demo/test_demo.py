# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""`make demo` starts its program; no test runs the demo, because it uses the lab of the tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

from tests.support import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()


@pytest.mark.timeout(60)
def test_make_demo_starts_its_program():
    (program,) = re.findall(r"\$\(PYTHON\) (\S.*?demo\S*) --image", MAKEFILE)
    (path,) = re.findall(r"^export PYTHONPATH := (.*)", MAKEFILE, re.MULTILINE)
    done = subprocess.run(
        [sys.executable, *program.split(), "--help"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": path.replace("$(CURDIR)", str(ROOT))},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "--archive" in done.stdout

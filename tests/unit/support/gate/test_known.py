# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What only computes is not run again with the same files, and is with others."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support import ROOT
from tests.support.gate import known

# What models and seeds are made of; prints the files of this checkout that importing it reads.
IMPORTS = """
import importlib, sys
from pathlib import Path
root = Path.cwd()
for folder in ("simulation", "tests/unit/simulation", "tests/unit/rule", "tests/support/rule"):
    for file in (root / folder).rglob("*.py"):
        if file.name != "__main__.py":
            importlib.import_module(".".join(file.relative_to(root).with_suffix("").parts))
for module in list(sys.modules.values()):
    file = Path(getattr(module, "__file__", None) or "/")
    if file.is_relative_to(root) and ".venv" not in file.parts:
        print(file.relative_to(root))
"""


def test_all_that_models_import_decides_whether_they_run_again():
    python = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(python, cwd=ROOT, text=True, check=True, capture_output=True)
    files = done.stdout.split()
    assert "plugins/module_utils/purelb/core/holding/right.py" in files
    assert [file for file in files if not file.startswith(known.INPUTS)] == []


@pytest.fixture
def tree(tmp_path):
    for name in known.INPUTS:
        file = tmp_path / name if "." in name else tmp_path / name / "sub/file.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("1")
    return tmp_path


def test_every_file_and_word_is_in_the_key(tree):
    words = ["tests/unit/rule", "--quiet"]
    keys = [known.key(words, tree), known.key(words[:1], tree)]
    for file in sorted(path for path in tree.rglob("*") if path.is_file()):
        file.write_text("2")
        keys.append(known.key(words, tree))
    (tree / "agent/sub/file.py").rename(tree / "agent/sub/other.py")
    keys.append(known.key(words, tree))
    assert len(set(keys)) == len(known.INPUTS) + 3


def test_compiled_files_are_not_in_the_key(tree):
    before = known.key([], tree)
    (tree / "agent/sub/file.pyc").write_text("compiled")
    assert known.key([], tree) == before

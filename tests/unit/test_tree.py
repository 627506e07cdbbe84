# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What is true of the whole tree."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter

from purelb_agent import __version__
from tests.support import ROOT

# Formats that have no place for a comment, and the licences themselves.
WITHOUT_COMMENTS = (".json", ".sum", ".tsv")
LICENCES = ("LICENSE", "COPYING")


def sources():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines()]


def test_every_file_says_whose_it_is_and_under_which_licence():
    bare = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path.is_file()
        and path.name not in LICENCES
        and path.suffix not in WITHOUT_COMMENTS
        and "SPDX-License-Identifier:" not in path.read_text()[:600]
    ]
    assert bare == []


def test_modules_are_gpl_and_everything_else_is_apache():
    for path in sources():
        if path.suffix == ".py" and path.is_file():
            name = str(path.relative_to(ROOT))
            is_plugin = name.startswith("plugins/") and not name.startswith("plugins/module_utils/")
            expected = "GPL-3.0-or-later" if is_plugin else "Apache-2.0"
            assert f"SPDX-License-Identifier: {expected}" in path.read_text()[:600], name


def test_the_programs_have_the_collections_version():
    assert f"\nversion: {__version__}\n" in (ROOT / "galaxy.yml").read_text()


LARGEST = 20


def python_files():
    return [path for path in sources() if path.suffix == ".py" and path.is_file()]


def test_no_folder_has_more_files_than_a_reader_takes_in_at_once():
    files = Counter(path.parent.relative_to(ROOT) for path in python_files())
    assert {str(folder): n for folder, n in files.items() if n > LARGEST} == {}


def test_every_package_has_a_docstring():
    packages = [path for path in python_files() if path.name == "__init__.py"]
    bare = [path for path in packages if not ast.get_docstring(ast.parse(path.read_text()))]
    assert bare == []
    folders = {path.parent for path in packages}
    subjects = ("agent/purelb_agent", "lab/labkit", "plugins/module_utils/purelb", "tests/support")
    inside = [p for p in python_files() if str(p.relative_to(ROOT)).startswith(subjects)]
    assert [path for path in inside if path.parent not in folders] == []


def test_a_class_name_means_one_thing():
    names = Counter(
        node.name
        for folder in ("agent/purelb_agent", "plugins/module_utils/purelb/core")
        for path in (ROOT / folder).rglob("*.py")
        if not path.stem.endswith(("_pb2", "_pb2_grpc"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []

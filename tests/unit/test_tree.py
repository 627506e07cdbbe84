# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Rules for the whole tree: licences, sizes, names, docstrings, imports."""

from __future__ import annotations

import ast
import subprocess
from collections import Counter

import pytest

from purelb_agent import __version__
from tests.support import ROOT

# Formats without comments, generated files, and the licences themselves.
WITHOUT_COMMENTS = (".json", ".sum", ".tsv", ".words")
LICENCES = ("LICENSE", "COPYING")
GENERATED = ("CHANGELOG.rst", "changelog.yaml")


def sources():
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, text=True, capture_output=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines()]


def test_every_file_has_a_licence_line():
    bare = [
        str(path.relative_to(ROOT))
        for path in sources()
        if path.is_file()
        and path.name not in (*LICENCES, *GENERATED)
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


def test_no_folder_has_more_than_20_python_files():
    files = Counter(path.parent.relative_to(ROOT) for path in python_files())
    assert {str(folder): n for folder, n in files.items() if n > LARGEST} == {}


def test_every_package_has_a_docstring():
    packages = [path for path in python_files() if path.name == "__init__.py"]
    bare = [path for path in packages if not ast.get_docstring(ast.parse(path.read_text()))]
    assert bare == []
    folders = {path.parent for path in packages}
    subjects = (
        *("agent/purelb_agent", "lab/labkit", "plugins/module_utils/purelb"),
        *("simulation", "tests/support"),
    )
    inside = [p for p in python_files() if str(p.relative_to(ROOT)).startswith(subjects)]
    assert [path for path in inside if path.parent not in folders] == []


def test_class_names_are_unique():
    names = Counter(
        node.name
        for folder in ("agent/purelb_agent", "plugins/module_utils/purelb/core")
        for path in (ROOT / folder).rglob("*.py")
        if not path.stem.endswith(("_pb2", "_pb2_grpc"))
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []


# Lines of product code.
LONGEST_FILE, LONGEST_FUNCTION = 400, 60


@pytest.fixture(scope="module")
def product():
    """The text of every Python file outside of tests that is not generated, by path."""
    return {
        str(path.relative_to(ROOT)): path.read_text()
        for path in [*python_files(), ROOT / "lab/lab"]
        if "tests" not in path.relative_to(ROOT).parts
        and not path.stem.endswith(("_pb2", "_pb2_grpc"))
    }


def test_no_product_file_is_longer_than_400_lines(product):
    lengths = {name: len(text.splitlines()) for name, text in product.items()}
    assert {name: n for name, n in lengths.items() if n > LONGEST_FILE} == {}


def test_no_product_function_is_longer_than_60_lines(product):
    lengths = {
        f"{name}:{node.lineno} {node.name}": node.end_lineno - node.lineno + 1
        for name, text in product.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    assert {name: n for name, n in lengths.items() if n > LONGEST_FUNCTION} == {}


def test_the_agent_imports_the_core_by_its_short_name():
    path = "ansible_collections.purelb.purelb.plugins.module_utils"
    agent = [
        file for file in sources() if file.is_file() and "agent" in file.relative_to(ROOT).parts[:1]
    ]
    assert [str(file) for file in agent if path in file.read_text()] == []


def imported_modules(path):
    """The full names of what a file imports; relative imports are left out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node.module


# None of them does I/O, reads a clock or draws random numbers, but for datetime.now (below).
PURE = {
    *("__future__", "bisect", "collections", "copy", "dataclasses", "datetime", "enum"),
    *("functools", "hashlib", "heapq", "hmac", "ipaddress", "itertools", "json", "re"),
    *("struct", "typing"),
}
IMPURE_CALLS = {"now", "today", "utcnow", "open", "input", "print"}


# import-linter (pyproject.toml) has a list of what the core must not import; this is what it may.
def test_the_core_imports_only_pure_modules():
    core = sorted((ROOT / "plugins/module_utils/purelb/core").rglob("*.py"))
    imports = {(path.name, name) for path in core for name in imported_modules(path)}
    assert {found for found in imports if found[1].partition(".")[0] not in PURE} == set()


def test_the_core_reads_no_clock_and_no_file():
    calls = [
        f"{path.name}:{node.lineno}"
        for path in (ROOT / "plugins/module_utils/purelb/core").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and (getattr(node.func, "id", None) or getattr(node.func, "attr", None)) in IMPURE_CALLS
    ]
    assert calls == []


# import-linter does not know the files that Ansible loads by their place.
def test_plugins_never_import_the_agent_or_the_lab():
    imports = {
        (path.name, name)
        for path in (ROOT / "plugins").rglob("*.py")
        for name in imported_modules(path)
    }
    assert {found for found in imports if found[1].startswith(("purelb_agent", "labkit"))} == set()


def test_python_tools_name_no_checkout():
    """All checkouts use the same ones, and the checkout that installed them may be gone."""
    tools = (path for path in (ROOT / ".venv/bin").iterdir() if path.is_file())
    first_lines = {tool: tool.read_bytes().split(b"\n", 1)[0] for tool in tools}
    scripts = {tool.name: line for tool, line in first_lines.items() if line.startswith(b"#!/")}
    packages = str((ROOT / ".venv").resolve()).encode()
    assert "ansible-playbook" in scripts
    assert [name for name, line in scripts.items() if not line.startswith(b"#!" + packages)] == []

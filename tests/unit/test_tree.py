# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What is true of the whole tree."""

from __future__ import annotations

import subprocess

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

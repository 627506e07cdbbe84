# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from tests.support.machine.debian import closure, foreign, parse, topmost

LISTING = "\n".join(
    "\t".join(fields)
    for fields in [
        ("base", "installed", "required", "", ", libc6 (>= 2.36)"),
        ("libc6", "installed", "optional", "libc", ", "),
        ("lab", "installed", "optional", "", "libc6:any, tool | other, mail-agent"),
        ("tool", "installed", "optional", "", ", libc (>= 1)"),
        ("other", "installed", "optional", "", ", "),
        ("postman", "installed", "optional", "mail-agent (= 1), mailx", ", "),
        ("extra", "installed", "optional", "", ", lab"),
        ("gone", "config-files", "optional", "", ", "),
    ]
)
FILES = {
    "base": {"/usr", "/usr/bin", "/usr/bin/cp"},
    "lab": {"/usr", "/usr/bin", "/usr/bin/lab", "/usr/share", "/usr/share/x"},
    "extra": {"/usr", "/usr/bin", "/usr/bin/fake", "/usr/lib", "/usr/lib/fake", "/usr/share"},
}


def test_only_installed_packages_are_parsed():
    assert set(parse(LISTING)) == {"base", "libc6", "lab", "tool", "other", "postman", "extra"}


def test_closure_has_the_base_and_the_first_of_alternatives_and_providers():
    installed = parse(LISTING)
    assert closure(installed, []) == {"base", "libc6"}
    assert closure(installed, ["lab"]) == {"base", "libc6", "lab", "tool", "postman"}


def test_second_alternative_counts_where_the_first_is_not_installed():
    installed = parse(LISTING)
    del installed["tool"]
    assert "other" in closure(installed, ["lab"])


def test_wanted_package_that_is_not_installed_is_an_error():
    with pytest.raises(KeyError, match="gone"):
        closure(parse(LISTING), ["gone"])


def test_files_of_others_are_foreign_and_shared_folders_are_not():
    present = {path for paths in FILES.values() for path in paths} | {"/usr/share/cache"}
    gone = foreign(FILES, {"base", "lab"}, present)
    assert gone == {"/usr/bin/fake", "/usr/lib", "/usr/lib/fake"}
    assert topmost(gone) == {"/usr/bin/fake", "/usr/lib"}


def test_what_is_not_there_need_not_be_hidden():
    assert foreign(FILES, {"base", "lab"}, {"/usr", "/usr/bin/cp"}) == set()

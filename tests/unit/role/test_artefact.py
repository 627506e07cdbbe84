# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The collection as users get it: what it has, and that it runs where no checkout is."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.newcomer import Newcomer

pytestmark = pytest.mark.timeout(120)
EXPECTED = {
    *("COPYING", "FILES.json", "LICENSE", "MANIFEST.json", "README.md", "CHANGELOG.rst"),
    *("agent", "changelogs", "demo", "docs", "meta", "playbooks", "plugins", "roles"),
}
SUFFIXES = {
    *("", ".css", ".in", ".j2", ".js", ".json", ".md", ".proto"),
    *(".py", ".pyi", ".rst", ".svg", ".txt", ".yaml", ".yml"),
}


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory):
    return Newcomer(tmp_path_factory.mktemp("newcomer"))


def files(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file() and path.suffix != ".pyc"}


def test_it_has_only_what_users_need(newcomer: Newcomer):
    assert {path.name for path in newcomer.content.iterdir()} == EXPECTED
    assert {path.suffix for path in files(newcomer.content)} <= SUFFIXES


def test_its_links_lead_somewhere(newcomer: Newcomer):
    links = [
        (page, target)
        for page in newcomer.content.rglob("*.md")
        for target in re.findall(r"\]\(([^)#:]+)[^):]*\)", page.read_text())
    ]
    assert links
    assert [(p.name, t) for p, t in links if not (p.parent / t).exists()] == []


def test_the_image_can_be_built_of_it(newcomer: Newcomer):
    recipe = (newcomer.content / "agent/Dockerfile").read_text()
    copied = re.findall(r"^COPY (?!--)(\S+) ", recipe, re.MULTILINE)
    assert copied
    assert [source for source in copied if not (newcomer.content / source).exists()] == []


def test_a_playbook_writes_where_it_was_called(newcomer: Newcomer):
    before = files(newcomer.content)
    options = ("-e", "purelb_install_manifests_dir=made", "-e", "purelb_install_monitoring=files")
    newcomer.run("ansible-playbook", "purelb.purelb.install", *options)
    assert (newcomer.here / "made" / "kustomization.yaml").is_file()
    assert (newcomer.here / "made" / "monitoring" / "alerts.yaml").is_file()
    assert files(newcomer.content) == before

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The collection as users get it: what it has, and that it runs where no checkout is."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.docs.doc_runner import copy_checkout
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


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_the_importer_of_an_index_accepts_it(tmp_path: Path):
    tree = tmp_path / "checkout"
    copy_checkout(tree)
    # It is made from what is committed.
    git = ["git", "-c", "user.name=t", "-c", "user.email=t@example.com"]
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "x"]):
        subprocess.run([*git, *command], cwd=tree, check=True)
    shutil.copytree(Path(sys.prefix) / "bin", tree / ".venv/bin", symlinks=True)
    url = "REPOSITORY=https://git.example.com/purelb"
    # The target alone: the environment is there.
    subprocess.run(["make", "--old-file=venv", "artefact", url], cwd=tree, check=True)
    (artefact,) = tree.glob(".cache/artefact/*.tar.gz")
    importer = tmp_path / "importer"
    subprocess.run([sys.executable, "-m", "venv", importer], check=True)
    pip = [importer / "bin/pip", "install", "--quiet", "--retries", "5", "galaxy-importer"]
    subprocess.run(pip, check=True)
    done = subprocess.run(
        [importer / "bin/python", "-m", "galaxy_importer.main", artefact],
        cwd=tmp_path, env={"PATH": f"{importer}/bin:/usr/bin:/bin", "HOME": str(tmp_path)},
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    said = done.stdout + done.stderr
    assert "Importer processing completed successfully" in said, said

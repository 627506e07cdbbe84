# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A user who has the built collection and no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support import ROOT
from tests.support.docs.doc_runner import copy_checkout

# What a newcomer installs by pip, at the versions of our own environment.
PACKAGES = ("ansible-core", "kubernetes")


class Newcomer:
    """Runs programs of Ansible in a folder, with the collection installed from its artefact."""

    def __init__(self, folder: Path, *, programs: Path | None = None) -> None:
        """Build and install the collection, with the programs of another environment than ours."""
        self._programs = programs or Path(sys.executable).parent
        self._folder = folder
        self.here = folder / "here"
        self.here.mkdir()
        copy_checkout(folder / "checkout")
        ours = Path(sys.executable).with_name("ansible-galaxy")
        build = [ours, "collection", "build", folder / "checkout", "--output-path", folder]
        subprocess.run(build, check=True, capture_output=True)
        (artefact,) = folder.glob("*.tar.gz")
        self.run("ansible-galaxy", "collection", "install", artefact)
        self.content = folder / ".ansible/collections/ansible_collections/purelb/purelb"

    def run(self, program: str, *arguments: str | Path, check: bool = True) -> str:
        """Run a program and return all that it prints; if it must succeed, that is asserted."""
        own = ("ANSIBLE_", "K8S_AUTH_", "KUBECONFIG", "PYTHONPATH")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(own)}
        done = subprocess.run(
            [self._programs / program, *arguments],
            cwd=self.here, env={**kept, "ANSIBLE_NOCOLOR": "1", "HOME": str(self._folder)},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=200,
        )  # fmt: skip
        assert (done.returncode == 0) is check, done.stdout
        return done.stdout


def new_environment(folder: Path) -> Path:
    """Make a virtual environment with what the installation page asks for; return its programs."""
    pinned = (ROOT / "requirements-dev.txt").read_text().splitlines()
    wanted = [line for line in pinned if line.split("==")[0] in PACKAGES]
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [folder / "bin/pip", "install", "--quiet", "--retries", "5", *wanted]
    subprocess.run(pip, check=True, capture_output=True)
    return folder / "bin"

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A user who has the built collection and no checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.support.docs.doc_runner import copy_checkout
from tests.support.environments import OURS, Environment


class Newcomer:
    """Runs programs of Ansible in a folder, with the collection installed from its artefact."""

    def __init__(self, folder: Path, *, environment: Environment = OURS) -> None:
        """Build and install the collection, with the programs of this environment."""
        self.environment = environment
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
            self.environment.argv(program, *arguments),
            cwd=self.here, env={**kept, "ANSIBLE_NOCOLOR": "1", "HOME": str(self._folder)},
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False, timeout=200,
        )  # fmt: skip
        assert (done.returncode == 0) is check, done.stdout
        return done.stdout

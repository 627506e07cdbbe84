# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Each ansible-core of docs/versions.md runs the modules' tests, an installation, an audit."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from pathlib import Path

import pytest

from labkit.images import rootfs
from labkit.lab import Lab
from tests.support import ROOT
from tests.support.environments import OF_TESTS, PACKAGES, SUITES, debian, new_environment
from tests.support.lab.cluster_queries import IMAGE
from tests.support.lab.installation import SETTINGS
from tests.support.newcomer import Newcomer

# Most of it are two Debian systems that may have to be fetched, and pip.
pytestmark = [pytest.mark.timeout(900), pytest.mark.thorough]
GIVEN = {
    "purelb_install_kubeconfig": "admin.conf",
    "purelb_audit_kubeconfig": "admin.conf",
    "purelb_install_image": IMAGE,
    **SETTINGS,
}


@pytest.fixture(scope="module", params=SUITES)
def newcomer(request, lab: Lab, tmp_path_factory) -> Newcomer:
    """A newcomer with this ansible-core."""
    suite = SUITES[request.param]
    # Our own Python is that of the Debian that the images are made of.
    enter = () if suite == rootfs.SUITE else debian(suite, Path(tempfile.gettempdir()))
    folder = tmp_path_factory.mktemp("newcomer")
    environment = new_environment(
        folder / "environment",
        enter=enter,
        versions={"ansible-core": f"{request.param}.*"},
        packages=PACKAGES + OF_TESTS,
    )
    made = Newcomer(folder, environment=environment)
    (made.here / "admin.conf").write_text(lab.kubeconfig.read_text())
    assert f"ansible [core {request.param}." in made.run("ansible", "--version")
    return made


def play(newcomer: Newcomer, name: str, *options: str, **settings: object) -> str:
    given = json.dumps({**GIVEN, **settings})
    return newcomer.run("ansible-playbook", f"purelb.purelb.{name}", *options, "-e", given)


def test_modules(newcomer: Newcomer):
    folders = (ROOT, ROOT / "agent", ROOT / "lab", ROOT / "plugins/module_utils")
    command = newcomer.environment.argv(
        "python", "-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", "tests/unit/modules"
    )
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, "PYTHONPATH": ":".join(map(str, folders))},
        text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout


def test_installation_audit_and_removal(newcomer: Newcomer, lab_without_purelb: Lab, figure):
    lab = lab_without_purelb
    foretold = play(newcomer, "install", "--check", "--diff")
    assert not lab.api.exists("/api/v1/namespaces/purelb-system")
    said = play(newcomer, "install")
    again = play(newcomer, "install")
    assert "changed=0" in again, again
    for text in (foretold, said, again):
        assert "DEPRECATION" not in text, text
    assert "nothing is wrong" in play(newcomer, "audit")
    play(newcomer, "install", purelb_install_state="absent")
    assert not lab.api.exists("/api/v1/namespaces/purelb-system")
    (changed,) = set(re.findall(r"localhost +: ok=\d+ +changed=(\d+)", said))
    figure(f"{changed} tasks changed")

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The molecule scenarios, each from creation to destruction, on the lab of these tests."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.inventory import inventory
from labkit.lab import Lab
from tests.support import ROOT
from tests.support.lab import commands
from tests.support.lab.cluster_queries import DAEMON_SET, IMAGE

pytestmark = pytest.mark.timeout(600)

SCENARIOS = [
    name if name == "default" else pytest.param(name, marks=pytest.mark.thorough)
    for name in sorted(p.parent.name for p in ROOT.glob("extensions/molecule/*/molecule.yml"))
]


# First: the others run without PureLB.
def test_a_cluster_with_purelb_is_left_alone(cluster: Lab, tmp_path: Path):
    before = cluster.api.get(DAEMON_SET)["metadata"]
    environ = {**environ_of(cluster), "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path)}
    done = molecule("default", environ)
    assert done.returncode != 0
    # Molecule breaks the lines, in a frame.
    said = re.sub(r"\x1b\[[0-9;]*m|│", "", done.stdout + done.stderr)
    assert "The cluster of KUBECONFIG has PureLB already" in " ".join(said.split())
    after = cluster.api.get(DAEMON_SET)["metadata"]
    assert (after["uid"], after["generation"]) == (before["uid"], before["generation"])


def environ_of(lab: Lab) -> dict[str, str]:
    kubeconfig = str(lab.kubeconfig)
    return {**os.environ, "ANSIBLE_NOCOLOR": "1", "KUBECONFIG": kubeconfig, "PURELB_IMAGE": IMAGE}


def molecule(scenario: str, environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).with_name("molecule"))
    argv = [program, "test", "--scenario-name", scenario]
    return commands.run(argv, cwd=ROOT / "extensions", env=environ)


@pytest.fixture(scope="module")
def molecule_environ(
    lab_without_purelb: Lab, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Return a scenario's environment: the lab, and a state folder of the tests' own."""
    file = tmp_path_factory.mktemp("molecule") / "inventory.json"
    file.write_text(inventory(lab_without_purelb.at, lab_without_purelb.topology))
    return {**environ_of(lab_without_purelb), "PURELB_INVENTORY": str(file)}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_runs_from_creation_to_destruction(
    scenario: str, molecule_environ: dict[str, str], tmp_path: Path
):
    # The state of an interrupted run would make the next one skip steps.
    environ = {**molecule_environ, "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path)}
    done = molecule(scenario, environ)
    assert done.returncode == 0, done.stdout + done.stderr

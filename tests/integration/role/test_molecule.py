# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The molecule scenarios, each from creation to destruction, on the lab of these tests."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from labkit.inventory import inventory
from labkit.lab import Lab
from tests.support import ROOT
from tests.support.lab import commands
from tests.support.lab.cluster_queries import IMAGE

pytestmark = pytest.mark.timeout(600)

SCENARIOS = [
    name if name == "default" else pytest.param(name, marks=pytest.mark.thorough)
    for name in sorted(p.parent.name for p in ROOT.glob("extensions/molecule/*/molecule.yml"))
]


@pytest.fixture(scope="module")
def molecule_environ(
    lab_without_purelb: Lab, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    """Return a scenario's environment: the lab, and a state folder of the tests' own."""
    file = tmp_path_factory.mktemp("molecule") / "inventory.json"
    file.write_text(inventory(lab_without_purelb.at, lab_without_purelb.topology))
    return {
        **os.environ,
        "ANSIBLE_NOCOLOR": "1",
        "KUBECONFIG": str(lab_without_purelb.kubeconfig),
        "PURELB_IMAGE": IMAGE,
        "PURELB_INVENTORY": str(file),
    }


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario_runs_from_creation_to_destruction(
    scenario: str, molecule_environ: dict[str, str], tmp_path: Path
):
    # The state of an interrupted run would make the next one skip steps.
    environ = {**molecule_environ, "MOLECULE_EPHEMERAL_DIRECTORY": str(tmp_path)}
    molecule = str(Path(sys.executable).with_name("molecule"))
    argv = [molecule, "test", "--scenario-name", scenario]
    done = commands.run(argv, cwd=ROOT / "extensions", env=environ)
    assert done.returncode == 0, done.stdout + done.stderr

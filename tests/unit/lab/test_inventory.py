# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from labkit.host.places import Places
from labkit.inventory import inventory
from labkit.topology import plan


@pytest.fixture
def topology():
    return plan(nodes=2)


def test_modules_run_in_the_network_namespace_of_their_host(tmp_path, topology):
    at = Places(cache=tmp_path)
    at.run.mkdir()
    groups = json.loads(inventory(at, topology))
    assert set(groups["purelb_nodes"]["hosts"]) == {"n1", "n2"}
    assert set(groups["purelb_segment"]["hosts"]) == {"client"}
    program = Path(groups["purelb_nodes"]["hosts"]["n2"]["ansible_python_interpreter"])
    assert f"--net=/run/netns/{topology.host('n2').netns} " in program.read_text()
    assert os.access(program, os.X_OK)

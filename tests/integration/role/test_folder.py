# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A folder of manifests has exactly what the role would apply."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from labkit.images.programs import programs
from labkit.lab import Lab
from tests.support.lab.cluster_queries import IMAGE

pytestmark = pytest.mark.timeout(120)


def apply(lab: Lab, folder: Path) -> str:
    """Apply a folder with kubectl and the installer's field manager."""
    program = [str(programs(lab.at).kubernetes), "kubectl", "--kubeconfig", str(lab.kubeconfig)]
    how = ["apply", "--server-side", "--field-manager=purelb.purelb", "-k", str(folder)]
    done = subprocess.run([*program, *how], text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def versions(lab: Lab, objects: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the resource versions of objects that programs do not write themselves."""
    found = [lab.api.get(lab.api.path_of(obj)) for obj in objects]
    return {
        f"{obj['kind']} {obj['metadata']['name']}": there["metadata"].get("generation")
        or there["metadata"]["resourceVersion"]
        for obj, there in zip(objects, found, strict=True)
        if obj["kind"] != "Lease"
    }


def test_kubectl_apply_after_the_role_changes_nothing(cluster, playbook, tmp_path):
    wanted = (f"manifests_dir={tmp_path}", f"image={IMAGE}")
    settings = [word for variable in wanted for word in ("-e", f"purelb_install_{variable}")]
    playbook("purelb.purelb.install", *settings)
    listed = yaml.safe_load((tmp_path / "kustomization.yaml").read_text())["resources"]
    texts = [(tmp_path / name).read_text() for name in listed]
    objects = [obj for text in texts for obj in yaml.safe_load_all(text)]
    before = versions(cluster, objects)
    assert apply(cluster, tmp_path).count("serverside-applied") == len(objects)
    assert versions(cluster, objects) == before

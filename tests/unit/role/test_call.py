# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A tag or a limit with which a playbook would do nothing is an error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from ansible_collections.purelb.purelb.plugins.lookup.call_problems import problems
from tests.support import ROOT
from tests.support.lab.cluster_queries import run_ansible

pytestmark = pytest.mark.timeout(120)
INSTALL = ("purelb.purelb.install",)
KNOWN = ("crds", "workloads")


def found(
    *called: str,
    tags: tuple[str, ...] = (),
    limit: str | None = None,
    known: tuple[str, ...] = KNOWN,
    needs_localhost: bool = True,
) -> list[str]:
    return problems(called, wanted=tags, limit=limit, known=known, needs_localhost=needs_localhost)


def test_unknown_tags_are_named_with_those_that_exist():
    (line,) = found(*INSTALL, tags=("workload", "crds", "all"))
    assert line == "--tags workload: this playbook has no such tag; it has these: crds, workloads"
    (line,) = found(*INSTALL, tags=("crds",), known=())
    assert line.endswith("it has none")
    assert found(*INSTALL, tags=("crds", "always", "tagged")) == []


@pytest.mark.parametrize("limit", ["n1", "n*:!n2", "@failed"])
def test_a_limit_that_leaves_localhost_out(limit: str):
    (line,) = found(*INSTALL, limit=limit)
    assert line.startswith(f"--limit {limit}: this playbook runs on localhost")
    assert found(*INSTALL, limit=f"{limit},localhost") == []
    assert found(*INSTALL, limit=limit, needs_localhost=False) == []


def test_the_tags_of_other_playbooks_are_theirs():
    assert found("site.yml", tags=("database",), limit="n1") == []


def test_ours_are_told_before_anything_is_done(tmp_path: Path):
    inventory = tmp_path / "hosts.yml"
    inventory.write_text(json.dumps({"purelb_nodes": {"hosts": {"n1": {}}}}))
    for name in ("install", "audit", "migrate", "verify", "rotate_peer_key", "load_image"):
        options = ["-i", str(inventory), "--tags", "workload"]
        options += [] if name == "load_image" else ["--limit", "n1"]
        done = run_ansible(f"purelb.purelb.{name}", *options, check=False, KUBECONFIG="/nowhere")
        assert done.returncode != 0, name
        assert "--tags workload: this playbook has no such tag" in done.stdout
        assert ("--limit n1: this playbook runs on localhost" in done.stdout) == (
            name != "load_image"
        )


def test_the_tags_of_the_playbook_are_the_parts_of_the_role():
    parts = yaml.safe_load((ROOT / "roles/purelb_install/vars/main.yml").read_text())
    first, *_others = yaml.safe_load((ROOT / "playbooks/install.yml").read_text())
    (task,) = first["tasks"]
    assert task["vars"]["parts"] == parts["purelb_install_parts"]

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the role does where the API server serves no admission policies, or none are wanted."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.support.lab.cluster_queries import run_ansible
from tests.support.static_api import serving

pytestmark = pytest.mark.timeout(120)
# Of the admission group, only webhooks.
WEBHOOKS = {
    "name": "validatingwebhookconfigurations",
    "kind": "ValidatingWebhookConfiguration",
    "namespaced": False,
}


def test_cluster_without_policies_is_refused_before_anything_is_applied(tmp_path: Path):
    with serving({"/apis/admissionregistration.k8s.io/v1": [WEBHOOKS]}) as api:
        (tmp_path / "kubeconfig").write_text(yaml.safe_dump(api.kubeconfig("x")))
        where = {"KUBECONFIG": str(tmp_path / "kubeconfig")}
        done = run_ansible("purelb.purelb.install", check=False, **where)
    said = " ".join(done.stdout.split())
    assert done.returncode != 0
    assert "does not serve ValidatingAdmissionPolicy of admissionregistration.k8s.io/v1" in said
    assert "set purelb_install_admission_policy to false" in said
    assert not api.written


def test_policies_are_removed_from_a_manifests_folder_when_switched_off(tmp_path: Path):
    (tmp_path / "admissionpolicies.yaml").write_text("# of an earlier run\n")
    settings = {
        "purelb_install_manifests_dir": str(tmp_path),
        "purelb_install_admission_policy": False,
    }
    run_ansible("purelb.purelb.install", "-e", json.dumps(settings))
    listed = yaml.safe_load((tmp_path / "kustomization.yaml").read_text())["resources"]
    assert {*listed, "kustomization.yaml"} == {path.name for path in tmp_path.glob("*.yaml")}
    assert "admissionpolicies.yaml" not in listed

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The role connects by its variables, with any other kubeconfigs."""

from __future__ import annotations

import json

import pytest

from tests.support.lab.cluster_queries import run_ansible

pytestmark = pytest.mark.timeout(120)


def test_kubeconfig_and_context_are_those_of_the_variables(cluster, tmp_path):
    config = json.loads(cluster.kubeconfig.read_text())
    (context,) = config["contexts"]
    nowhere = {"name": "nowhere", "cluster": {"server": "https://127.0.0.1:9"}}
    config["clusters"].append(nowhere)
    wrong = {**context["context"], "cluster": "nowhere"}
    config["contexts"].append({"name": "wrong", "context": wrong})
    config["current-context"] = "wrong"
    path = tmp_path / "both"
    path.write_text(json.dumps(config))
    asked = ("purelb.purelb.install", "--check", "-e", f"purelb_install_kubeconfig={path}")
    environ = {"KUBECONFIG": "/nowhere"}
    done = run_ansible(*asked, check=False, **environ)
    assert done.returncode != 0
    assert "127.0.0.1:9" in done.stdout
    run_ansible(*asked, "-e", f"purelb_install_context={context['name']}", **environ)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The demo leaves every cluster alone that it was not told to use."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from demo import demo
from demo.target import target, untouched
from labkit.errors import Problem

IMAGE = "registry.example.com/purelb:1"


@pytest.fixture
def kubeconfig(tmp_path: Path) -> str:
    clusters = [{"name": "c", "cluster": {"server": f"https://{name}:6443"}} for name in ["prod"]]
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": clusters,
        "users": [{"name": "u", "user": {"token": "t"}}],
        "contexts": [{"name": "of-prod", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "of-prod",
    }
    path = tmp_path / "config"
    path.write_text(json.dumps(config))
    return str(path)


def test_kubeconfig_alone_means_the_lab_and_a_line_that_says_so(kubeconfig: str):
    environ = {"KUBECONFIG": kubeconfig, "PURELB_IMAGE": IMAGE}
    assert target(environ) is None
    assert kubeconfig in untouched(environ)
    assert "DEMO_CLUSTER=mine" in untouched(environ)
    assert untouched({}) == ""


def test_asked_for_the_cluster_is_named_with_server_and_context(kubeconfig: str):
    mine = target({"KUBECONFIG": kubeconfig, "PURELB_IMAGE": IMAGE, "DEMO_CLUSTER": "mine"})
    assert mine
    assert str(mine) == f"https://prod:6443 (context of-prod of {kubeconfig})"
    assert mine.image == IMAGE


def test_second_file_of_the_kubeconfig_may_have_the_cluster(kubeconfig: str, tmp_path: Path):
    files = f"{tmp_path}/none:{kubeconfig}"
    mine = target({"KUBECONFIG": files, "PURELB_IMAGE": IMAGE, "DEMO_CLUSTER": "mine"})
    assert mine
    assert mine.server == "https://prod:6443"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"DEMO_CLUSTER": "yes"}, "DEMO_CLUSTER is 'yes': use DEMO_CLUSTER=mine"),
        ({"PURELB_IMAGE": ""}, "needs an image: set PURELB_IMAGE"),
        ({"KUBECONFIG": "/none"}, "/none names no cluster"),
    ],
)
def test_what_cannot_be_meant_is_refused_in_one_line(kubeconfig: str, change, words):
    environ = {"KUBECONFIG": kubeconfig, "PURELB_IMAGE": IMAGE, "DEMO_CLUSTER": "mine", **change}
    with pytest.raises(Problem, match=words) as raised:
        target(environ)
    assert "\n" not in str(raised.value)


def test_playbooks_of_the_demo_are_not_led_elsewhere_by_other_variables(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setenv("K8S_AUTH_HOST", "https://prod:6443")
    monkeypatch.setenv("K8S_AUTH_KUBECONFIG", "/prod")
    assert not [name for name in demo.kept_environment() if name.startswith("K8S_AUTH_")]

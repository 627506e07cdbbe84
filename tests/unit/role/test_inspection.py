# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the role finds out before it writes anything."""

from __future__ import annotations

import json
import re
import subprocess
from typing import Any

import pytest

from tests.support.lab.cluster_queries import run_ansible
from tests.support.static_api import Object, StaticApi, serving

pytestmark = pytest.mark.timeout(120)
CREDENTIAL = "a-token-that-nobody-may-see"
KINDS = {
    "/api/v1": [{"name": "nodes", "kind": "Node", "namespaced": False}],
    "/apis/apps/v1": [
        {"name": "daemonsets", "kind": "DaemonSet", "namespaced": True},
        {"name": "deployments", "kind": "Deployment", "namespaced": True},
    ],
}
NODES = "/api/v1/nodes"
DAEMONSETS = "/apis/apps/v1/namespaces/purelb-system/daemonsets"


def node(name: str, *images: str) -> Object:
    listed = [{"names": [image]} for image in images]
    return {"metadata": {"name": name}, "status": {"images": listed}}


def foreign(name: str) -> Object:
    """Return a program with our name that another installer made."""
    return {
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": "purelb"}},
            "template": {"spec": {"containers": [{"image": f"example.com/{name}:v2"}]}},
        },
    }


def run(api: StaticApi, *options: str, **settings: Any) -> tuple[int, str]:
    given = {"purelb_install_kubeconfig": api.kubeconfig(CREDENTIAL), **settings}
    done: subprocess.CompletedProcess[str] = run_ansible(
        "purelb.purelb.install", *options, "-e", json.dumps(given), check=False
    )
    assert CREDENTIAL not in done.stdout + done.stderr
    return done.returncode, " ".join(done.stdout.split())


def test_nodes_are_not_asked_for_the_image_if_that_is_not_wanted():
    with serving(KINDS, {NODES: [node("without")]}) as api:
        code, said = run(api, purelb_install_check_image=False)
    assert code != 0
    assert "does not serve ValidatingAdmissionPolicy" in said


@pytest.mark.parametrize("state", ["present", "absent"])
def test_another_purelb_in_the_namespace_is_left_alone(state: str):
    with serving(KINDS, {DAEMONSETS: [foreign("lbnodeagent")]}) as api:
        code, said = run(api, purelb_install_state=state)
    assert code != 0
    assert "Another PureLB is installed in namespace purelb-system: DaemonSet lbnodeagent" in said
    assert "example.com/lbnodeagent:v2" in said
    assert not api.written


def test_an_image_that_no_node_can_pull_is_refused_unless_all_have_it():
    image = "localhost/purelb/purelb:0.1.0"
    # A node reports 50 images only: the third may have it.
    full = node("full", *(f"example.com/{number}" for number in range(50)))
    nodes = [node("with", image), node("without", "localhost/purelb/purelb:0.0.9"), full]
    with serving(KINDS, {NODES: nodes}) as api:
        code, said = run(api, purelb_install_image_looks=1)
    assert code != 0
    assert f"without: without the image {image}, and no node can pull it" in said
    assert "set purelb_install_image" in said
    assert "purelb.purelb.load_image" in said
    assert not api.written


def test_the_token_of_a_kubeconfig_is_never_printed():
    settings = {"purelb_install_image": "registry.example.com/purelb:1"}
    with serving(KINDS) as api:
        code, said = run(api, "-vvv", **settings)
    assert code != 0
    # It got past the two checks above, with its results as they are: nothing else is hidden.
    assert "does not serve ValidatingAdmissionPolicy" in said
    assert "VALUE_SPECIFIED_IN_NO_LOG_PARAMETER" in said
    assert not re.search(r"[^*][*]{8}[^*]", said)


@pytest.mark.parametrize(
    "kubeconfig",
    [{"users": CREDENTIAL}, f"users:\n- user: {{token: {CREDENTIAL}}}\n"],
    ids=["malformed", "text"],
)
def test_nor_is_that_of_a_kubeconfig_that_cannot_be_used(kubeconfig: Any):
    with serving(KINDS) as api:
        code, said = run(api, "-vvv", purelb_install_kubeconfig=kubeconfig)
    assert code != 0
    assert "kubeconfig" in said


def test_mistyped_variables_are_refused_by_name():
    with serving(KINDS) as api:
        code, said = run(api, purelb_install_imge="a", purelb_instal_namespace="b")
    assert code != 0
    assert (
        "purelb_install_imge: there is no such variable; did you mean purelb_install_image" in said
    )
    assert "did you mean purelb_install_namespace?" in said


@pytest.mark.parametrize(
    "settings", [{"purelb_install_state": "absent"}, {"purelb_install_manifests_dir": "/made"}]
)
def test_tags_are_refused_where_they_would_leave_out_what_is_needed(settings: dict[str, str]):
    with serving(KINDS) as api:
        code, said = run(api, "--tags", "crds,config", **settings)
    assert code != 0
    assert "tags select parts of an installation in a cluster" in said
    assert not api.written


def test_labelled_nodes_of_an_installation_from_before_are_named():
    agents = foreign("lbnodeagent")
    agents["kind"] = "DaemonSet"
    agents["spec"]["selector"] = {
        "matchLabels": {
            "app.kubernetes.io/name": "purelb",
            "app.kubernetes.io/component": "lbnodeagent",
        }
    }
    label = {"node.kubernetes.io/exclude-from-external-load-balancers": ""}
    labelled = node("control")
    labelled["metadata"]["labels"] = label
    given = {"purelb_install_image": "registry.example.com/purelb:1"}
    with serving(KINDS, {DAEMONSETS: [agents], NODES: [labelled]}) as api:
        _code, said = run(api, **given)
        assert "control: nodes with the label" in said
        assert "With purelb_install_exclude_labelled_nodes: true other nodes have them" in said
        _code, said = run(api, purelb_install_exclude_labelled_nodes=False, **given)
        assert "control: nodes with the label" not in said
    with serving(KINDS, {NODES: [labelled]}) as api:
        _code, said = run(api, **given)
        assert "control: nodes with the label" not in said


def test_a_word_that_says_nothing_about_labelled_nodes_is_refused():
    with serving(KINDS) as api:
        code, said = run(api, purelb_install_exclude_labelled_nodes="perhaps")
    assert code != 0
    assert "purelb_install_exclude_labelled_nodes is perhaps: use auto, true or false" in said

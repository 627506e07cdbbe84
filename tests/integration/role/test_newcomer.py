# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The first hour of a user with a cluster, a new virtual environment and the built collection."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest

from labkit.lab import Lab
from tests.support.environments import new_environment
from tests.support.lab.accounts import objects_applied
from tests.support.lab.cluster_queries import IMAGE
from tests.support.lab.installation import SETTINGS
from tests.support.newcomer import Newcomer

pytestmark = [pytest.mark.timeout(240), pytest.mark.thorough]
BINDING = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    "/group-ranges.purelb-system.purelb.io"
)
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PARTS = ("crds", "permissions", "config", "workloads", "monitoring", "verify")
# As another installer makes it: the selector cannot be changed.
LABELS = {"app": "purelb", "component": "lbnodeagent"}
OTHER = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "lbnodeagent", "namespace": "other-purelb"},
    "spec": {
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {
                "nodeSelector": {"none": "such"},
                "containers": [{"name": "lbnodeagent", "image": "example.com/lbnodeagent:v2"}],
            },
        },
    },
}
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "other-purelb"}}


@pytest.fixture(scope="module")
def newcomer(lab: Lab, tmp_path_factory) -> Newcomer:
    folder = tmp_path_factory.mktemp("newcomer")
    someone = Newcomer(folder, environment=new_environment(folder / "environment"))
    (someone.here / "admin.conf").write_text(lab.kubeconfig.read_text())
    return someone


@pytest.fixture
def other_purelb(cluster: Lab) -> Iterator[str]:
    with objects_applied(cluster, [NAMESPACE, OTHER]):
        yield "other-purelb"


def install(newcomer: Newcomer, *options: str, check: bool = True, **settings: object) -> str:
    """Run the installation with a kubeconfig of the folder; return the text on one line."""
    given = {
        "purelb_install_kubeconfig": "admin.conf",
        "purelb_install_image": IMAGE,
        **SETTINGS,
        "purelb_install_check_image": True,
        **settings,
    }
    said = newcomer.run(
        "ansible-playbook", "purelb.purelb.install", *options, "-e", json.dumps(given), check=check
    )
    return " ".join(said.split())


def test_each_part_runs_alone_on_an_installed_cluster(newcomer: Newcomer, cluster: Lab):
    for part in PARTS:
        said = install(newcomer, "--tags", part)
        assert "changed=0" in said, f"{part}: {said}"
    cluster.api.delete(BINDING)
    assert "changed=0" in install(newcomer, "--tags", "crds,config,workloads,monitoring")
    assert not cluster.api.exists(BINDING)
    assert "changed=1" in install(newcomer, "--tags", "permissions")
    assert cluster.api.exists(BINDING)


def test_a_kubeconfig_may_be_a_dictionary_and_its_key_is_not_printed(newcomer: Newcomer):
    kubeconfig = json.loads((newcomer.here / "admin.conf").read_text())
    (secret,) = [user["user"]["client-key-data"] for user in kubeconfig["users"]]
    said = install(newcomer, "-vvv", "--check", purelb_install_kubeconfig=kubeconfig)
    assert "changed=0" in said
    assert secret not in said
    assert secret[:40] not in said


def test_the_audit_is_written_where_it_was_called_and_says_where(newcomer: Newcomer, cluster: Lab):
    options = ("-e", "purelb_audit_kubeconfig=admin.conf", "-e", "purelb_audit_folder=report")
    said = newcomer.run("ansible-playbook", "purelb.purelb.audit", *options)
    page = newcomer.here / "report" / "purelb-audit.html"
    assert page.is_file()
    assert str(page) in said


def test_the_audit_reports_a_service_that_waits_and_a_namespace_without_purelb(
    newcomer: Newcomer, cluster: Lab, make_service
):
    make_service(annotations={"purelb.io/service-group": "nowhere"})
    options = ["-e", "purelb_audit_kubeconfig=admin.conf", "-e", "purelb_audit_folder=waiting"]
    said = newcomer.run("ansible-playbook", "purelb.purelb.audit", *options)
    assert "nothing is wrong" not in said
    assert "warning servicePending: Service default/" in said
    (newcomer.here / "waiting" / "purelb-audit.json").unlink()
    # It fails after it has written the page.
    strict = [*options, "-e", "purelb_audit_fail_on=warning"]
    newcomer.run("ansible-playbook", "purelb.purelb.audit", *strict, check=False)
    facts = json.loads((newcomer.here / "waiting" / "purelb-audit.json").read_text())
    (found,) = (f["message"] for f in facts["findings"] if f["code"] == "servicePending")
    assert found.startswith("has no address: unknown_pool: ServiceGroup nowhere does not exist")
    options += ["-e", "purelb_audit_namespace=elsewhere"]
    said = newcomer.run("ansible-playbook", "purelb.purelb.audit", *options, check=False)
    assert "PureLB is not installed in namespace elsewhere" in said
    assert "Traceback" not in said


def test_another_purelb_in_the_namespace_stops_it_before_the_first_write(
    newcomer: Newcomer, cluster: Lab, other_purelb: str
):
    before = versions(cluster)
    said = install(newcomer, check=False, purelb_install_namespace=other_purelb)
    assert f"Another PureLB is installed in namespace {other_purelb}: DaemonSet lbnodeagent" in said
    assert "Nothing was changed" in said
    assert versions(cluster) == before


def test_an_image_that_the_nodes_lack_stops_it_before_the_first_write(
    newcomer: Newcomer, cluster: Lab
):
    before = versions(cluster)
    lacking = "localhost/purelb/purelb:0.0.1"
    said = install(newcomer, check=False, purelb_install_image=lacking)
    listed = re.escape(", ".join(cluster.nodes))
    assert re.search(f"{listed}: without the image {lacking}, and no node can pull it", said)
    assert versions(cluster) == before


@pytest.mark.parametrize("strict", ["false", "true"])
def test_kube_proxy_that_lets_all_nodes_answer_is_named_before_the_first_write(
    newcomer: Newcomer, cluster: Lab, strict: str
):
    maps = "/api/v1/namespaces/kube-system/configmaps"
    text = f"kind: KubeProxyConfiguration\nmode: ipvs\nipvs:\n  strictARP: {strict}\n"
    cluster.api.create(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
            "data": {"config.conf": text},
        }
    )
    try:
        said = install(newcomer, "--check", "--tags", "workloads")
    finally:
        cluster.api.delete(f"{maps}/kube-proxy")
    assert ("without strictARP: every node will answer ARP" in said) == (strict == "false")


def versions(lab: Lab) -> dict[str, str]:
    found = lab.api.get(DEFINITIONS)["items"] + [lab.api.get(BINDING)]
    return {obj["metadata"]["name"]: obj["metadata"]["resourceVersion"] for obj in found}

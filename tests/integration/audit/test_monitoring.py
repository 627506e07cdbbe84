# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The role's Prometheus files in a Prometheus that scrapes the lab: alerts fire and resolve."""

from __future__ import annotations

import json
import subprocess

import pytest
import yaml

from tests.support.lab.cluster_queries import AGENTS, IMAGE, addresses_of, eventually
from tests.support.lab.faults import is_ready

pytestmark = pytest.mark.timeout(150)
HOST, ADDRESS = "n2", "127.0.0.1:9095"
SYSTEM = "namespaces/purelb-system"
GROUPS = f"/apis/purelb.io/v2/{SYSTEM}/servicegroups"
NODE_CONFIGS = f"/apis/purelb.io/v2/{SYSTEM}/lbnodeagents"
MONITORING = f"/apis/monitoring.coreos.com/v1/{SYSTEM}"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
# Shorter intervals to save time; otherwise the rules are those of an installation.
SOONER = {
    name: {"for": "2s"}
    for name in ("PureLBLeaseUnhealthy", "PureLBAddressNotAnnounced", "PureLBPoolNearlyFull")
}


@pytest.fixture(scope="module")
def folder(cluster, playbook, tmp_path_factory):
    """The role's files for a Prometheus without the operator."""
    made = tmp_path_factory.mktemp("manifests")
    options = {"purelb_install_manifests_dir": str(made), "purelb_install_alerts": SOONER}
    playbook("purelb.purelb.install", "-e", json.dumps(options))
    return made / "monitoring"


def target(pod):
    """Return the discovery labels of a pod that scrape.yaml uses."""
    (container,) = pod["spec"]["containers"]
    port = next(port for port in container["ports"] if port["name"] == "monitoring")
    meta = {
        "pod_label_app_kubernetes_io_name": pod["metadata"]["labels"]["app.kubernetes.io/name"],
        "pod_container_port_name": port["name"],
        "namespace": pod["metadata"]["namespace"],
        "pod_name": pod["metadata"]["name"],
        "pod_node_name": pod["spec"]["nodeName"],
    }
    return {
        "targets": [f"{pod['status']['podIP']}:{port['containerPort']}"],
        "labels": {f"__meta_kubernetes_{name}": value for name, value in meta.items()},
    }


@pytest.fixture(scope="module")
def prometheus(cluster, folder):
    """A Prometheus on a node, configured with the role's files."""
    # A Pod of an earlier test that is still terminating would never be a target.
    eventually(lambda: all(map(is_ready, cluster.api.items(AGENTS))), "lasting Pods", seconds=60)
    pods = cluster.api.items(AGENTS)
    scrape = yaml.safe_load((folder / "scrape.yaml").read_text())
    (job,) = scrape["scrape_configs"]
    # Debian's Prometheus has no Kubernetes discovery: the targets are in a file.
    assert job.pop("kubernetes_sd_configs") == [
        {"role": "pod", "namespaces": {"names": ["purelb-system"]}}
    ]
    job["static_configs"] = [target(pod) for pod in pods]
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(folder / "alerts.yaml")],
        **scrape,
    }
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(config))
    with (folder / "prometheus.log").open("wb") as log:
        process = cluster.popen_in(
            HOST,
            [
                "prometheus",
                f"--config.file={folder / 'prometheus.yaml'}",
                f"--storage.tsdb.path={folder / 'data'}",
                f"--web.listen-address={ADDRESS}",
            ],
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    try:
        expected = {pod["metadata"]["name"] for pod in pods}
        eventually(
            lambda: expected <= {series["pod"] for series in query(cluster, "up == 1")},
            "target for each pod",
            seconds=30,
        )
        yield cluster
    finally:
        process.terminate()
        process.wait(20)


def query(lab, expression):
    """Return the labels of each series of an expression's result."""
    # While it starts, it answers with another status.
    argv = ["curl", "-sS", "--fail", "-G", "--data-urlencode", f"query={expression}"]
    done = lab.run_in(HOST, [*argv, f"http://{ADDRESS}/api/v1/query"], check=False)
    if done.returncode:
        return []
    return [found["metric"] for found in json.loads(done.stdout)["data"]["result"]]


def firing(lab, alert, label):
    """Return the values of a label of the firing alerts."""
    found = query(lab, f'ALERTS{{alertname="{alert}",alertstate="firing"}}')
    return {series[label] for series in found}


def test_every_program_is_scraped_with_the_labels_of_the_alerts(prometheus):
    def all_scraped():
        """Return the agents' series; a scrape that took too long ends them until the next."""
        found = query(prometheus, "purelb_election_lease_healthy")
        return found if {series["node"] for series in found} == set(prometheus.nodes) else []

    agents = eventually(all_scraped, "series of every agent")
    assert {series["namespace"] for series in agents} == {"purelb-system"}
    loaded = "purelb_k8s_client_config_loaded_bool{pod=~'allocator-.*'}"
    eventually(lambda: query(prometheus, loaded), "series of an allocator")


@pytest.mark.thorough
def test_healthy_cluster_has_no_alerts(prometheus, make_service):
    vips = addresses_of(prometheus, make_service())
    announced = "purelb_lbnodeagent_announced"
    eventually(
        lambda: set(vips) <= {series["ip"] for series in query(prometheus, announced)},
        "announcement",
    )
    # On a busy machine a renewal may be late.
    alerts = 'ALERTS{alertname!="PureLBRenewalsNearDeadline"}'
    eventually(lambda: not query(prometheus, alerts), "silence", seconds=60)


def test_node_cut_off_from_the_api_causes_an_alert_until_it_returns(prometheus):
    prometheus.partition("n1")
    eventually(
        lambda: firing(prometheus, "PureLBLeaseUnhealthy", "node") == {"n1"}, "alert", seconds=30
    )
    prometheus.heal("n1")
    eventually(
        lambda: not firing(prometheus, "PureLBLeaseUnhealthy", "node"), "its end", seconds=30
    )


@pytest.mark.thorough
def test_addresses_on_no_node_cause_alerts_until_they_have_a_node(prometheus, make_service):
    vips = addresses_of(prometheus, make_service())
    meta = {"name": "nowhere", "namespace": "purelb-system"}
    body = {"apiVersion": "purelb.io/v2", "kind": "LBNodeAgent", "metadata": meta}
    prometheus.api.apply({**body, "spec": {"local": {"localInterface": "^nothing"}}})
    try:
        alert = "PureLBAddressNotAnnounced"
        eventually(
            lambda: firing(prometheus, alert, "ip") >= set(vips), "alerts of both", seconds=30
        )
    finally:
        prometheus.api.delete(f"{NODE_CONFIGS}/nowhere")
    eventually(lambda: not firing(prometheus, alert, "ip"), "their end", seconds=30)


@pytest.mark.thorough
def test_exhausted_pool_causes_alerts_until_addresses_are_free(prometheus, make_service):
    meta = {"name": "small", "namespace": "purelb-system"}
    pools = {
        "v4pool": {"pool": "172.28.1.211/32", "subnet": "172.28.1.0/24"},
        "v6pool": {"pool": "fd28:0:0:1::211/128", "subnet": "fd28:0:0:1::/64"},
    }
    body = {"apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": meta}
    prometheus.api.apply({**body, "spec": {"local": pools}})
    alert = "PureLBPoolNearlyFull"
    try:
        path = make_service(annotations={"purelb.io/service-group": "small"})
        addresses_of(prometheus, path)
        eventually(
            lambda: firing(prometheus, alert, "family") == {"IPv4", "IPv6"}, "alerts", seconds=30
        )
        prometheus.api.delete(path)
        eventually(lambda: not firing(prometheus, alert, "family"), "their end", seconds=30)
    finally:
        prometheus.api.delete(f"{GROUPS}/small")


@pytest.fixture
def operator(cluster):
    """Definitions of the Prometheus Operator's kinds, which accept every field."""
    kinds = {"podmonitors": "PodMonitor", "prometheusrules": "PrometheusRule"}
    for plural, kind in kinds.items():
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": "v1", "served": True, "storage": True}
        cluster.api.apply(
            {
                "apiVersion": "apiextensions.k8s.io/v1",
                "kind": "CustomResourceDefinition",
                "metadata": {"name": f"{plural}.monitoring.coreos.com"},
                "spec": {
                    "group": "monitoring.coreos.com",
                    "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
                    "scope": "Namespaced",
                    "versions": [{**version, "schema": {"openAPIV3Schema": schema}}],
                },
            }
        )
    for plural in kinds:
        # The role looks for the kinds when it starts.
        eventually(lambda p=plural: is_discoverable(cluster, p), f"{plural} to be served")
    yield
    paths = [f"{DEFINITIONS}/{plural}.monitoring.coreos.com" for plural in kinds]
    for path in paths:
        cluster.api.delete(path)
    # While it is being deleted a kind can still be discovered, but not created.
    for path in paths:
        cluster.api.wait(path, lambda seen: seen is None, what=f"end of {path}", seconds=60)


def is_discoverable(lab, plural):
    """Whether a kind is in the discovery document, and its objects can be listed."""
    found = lab.api.find("/apis/monitoring.coreos.com/v1") or {"resources": ()}
    is_known = plural in {resource["name"] for resource in found["resources"]}
    return is_known and lab.api.exists(f"{MONITORING}/{plural}")


def names(cluster, plural):
    return {item["metadata"]["name"] for item in cluster.api.items(f"{MONITORING}/{plural}")}


@pytest.mark.thorough
@pytest.mark.timeout(300)
def test_operator_objects_are_created_and_removed_by_the_role(cluster, playbook, operator):
    command = ["purelb.purelb.install", "-e", f"purelb_install_image={IMAGE}"]
    playbook(*command)
    assert names(cluster, "podmonitors") == {"purelb-lbnodeagent", "purelb-allocator"}
    (rule,) = cluster.api.items(f"{MONITORING}/prometheusrules")
    assert "{{ $labels.node }}" in json.dumps(rule["spec"])
    dashboard = cluster.api.get(f"/api/v1/{SYSTEM}/configmaps/purelb-dashboard")
    assert json.loads(dashboard["data"]["purelb.json"])["title"] == "PureLB"
    assert "changed=0" in playbook(*command).stdout
    playbook(*command, "-e", "purelb_install_monitoring=off")
    # Deleted in the foreground, which waits until the garbage collector knows the new kinds.
    eventually(
        lambda: not names(cluster, "podmonitors") | names(cluster, "prometheusrules"),
        "end of the objects",
        seconds=90,
    )

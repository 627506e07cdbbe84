# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The lab with PureLB installed by its playbook, a pool, a web server, and helpers to watch them.

`cluster` is installed once for all tests. Each test gets Services of its own, which are deleted
after it, and begins only when every agent is ready.
"""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from labkit.lab import Lab
from tests.support import ROOT
from tests.support.lab import restarts, scheduling
from tests.support.lab.cluster_queries import (
    IMAGE,
    VIPS_V4,
    VIPS_V6,
    Logs,
    addresses_of,
    agents_ready,
    error_lines,
    eventually,
    holder,
    reset_lock_transitions,
    run_ansible,
)

scheduling.choose_lab()

ARCHIVE = ROOT / ".cache/image.tar"
# The demo's web server says which pod answered.
SERVER = (ROOT / "demo/server.py").read_text()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(scheduling.Figures(config))


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> scheduling.Scheduling:
    return scheduling.Scheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    scheduling.put_longest_first(items)


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Note something that was measured, to be shown with the outcome of the test."""
    return partial(record_property, scheduling.FIGURE)


def run_playbook(lab: Lab, *arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run ansible-playbook on the lab with the collection under test."""
    return run_ansible(*arguments, check=check, KUBECONFIG=str(lab.kubeconfig))


@pytest.fixture(scope="session")
def lab() -> Lab:
    return Lab.load()


@pytest.fixture(scope="session")
def playbook(lab: Lab) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return run_playbook(lab, *arguments, check=check)

    return run


_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_WEB = "/apis/apps/v1/namespaces/default/deployments/web"


def _web(name: str) -> dict[str, Any]:
    apart = {
        "labelSelector": {"matchLabels": {"app": name}},
        "topologyKey": "kubernetes.io/hostname",
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "replicas": 3,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 0,
                    # One on each node, also after a node was away: a test may ask for any of them.
                    "affinity": {"podAntiAffinity": {_REQUIRED: [apart]}},
                    "containers": [
                        {
                            "name": name,
                            "image": IMAGE,
                            "imagePullPolicy": "Never",
                            "command": ["/opt/purelb/bin/python3", "-c", SERVER],
                            # It answers while agents of the node are busy.
                            "resources": {"requests": {"cpu": "50m"}},
                            "readinessProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
                        }
                    ],
                },
            },
        },
    }


@pytest.fixture(scope="session")
def cluster(lab: Lab) -> Lab:
    """The lab with PureLB, a ServiceGroup and a web server that says which pod answers."""
    _provide(lab)
    return lab


@pytest.fixture(scope="session")
def provide(lab: Lab) -> Callable[..., None]:
    """Installs again what `cluster` promises, also with another name of the image."""
    return partial(_provide, lab)


@pytest.fixture(scope="module")
def lab_without_purelb(lab: Lab) -> Iterator[Lab]:
    """The lab with the image and the web server, but without PureLB, for the tests of one file."""
    lab.load_image(ARCHIVE)
    _remove(lab)
    _provide_web(lab)
    yield lab
    _remove(lab)
    _provide(lab)


def _remove(lab: Lab) -> None:
    gone = ("purelb_install_state=absent", "purelb_install_remove_crds=true")
    run_playbook(lab, "purelb.purelb.install", *(part for one in gone for part in ("-e", one)))


def _provide(lab: Lab, image: str = IMAGE) -> None:
    lab.load_image(ARCHIVE)
    run_playbook(lab, "purelb.purelb.install", "-e", f"purelb_install_image={image}")
    lab.api.apply(
        {
            "apiVersion": "purelb.io/v2",
            "kind": "ServiceGroup",
            "metadata": {"name": "default", "namespace": "purelb-system"},
            "spec": {
                "local": {
                    "v4pool": {"pool": VIPS_V4, "subnet": "172.28.1.0/24"},
                    "v6pool": {"pool": VIPS_V6, "subnet": "fd28:0:0:1::/64"},
                }
            },
        }
    )
    _provide_web(lab)


def _provide_web(lab: Lab) -> None:
    lab.api.apply(_web("web"))
    wait_for_web(lab)


def wait_for_web(lab: Lab) -> None:
    """Wait until all of the web server is ready."""
    lab.api.wait(
        _WEB,
        lambda d: d["status"].get("readyReplicas") == d["spec"]["replicas"],
        what="web server",
        seconds=60,
    )


@pytest.fixture(scope="session")
def logs(cluster: Lab) -> Iterator[Logs]:
    followed = Logs(cluster)
    yield followed
    followed.close()


@pytest.fixture(autouse=True)
def _no_unexpected_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test of the cluster makes a program of ours fail, unless it says with which words."""
    if "cluster" not in request.fixturenames:
        yield
        return
    logs: Logs = request.getfixturevalue("logs")
    logs.news()
    yield
    markers = request.node.iter_markers("expects_errors")
    expected = (word for marker in markers for word in marker.args)
    found = error_lines(logs.news(), *expected)
    assert not found, "\n".join(found)


@pytest.fixture(autouse=True)
def _healthy_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Each test of the cluster begins, and leaves the lab, without a fault."""
    if "cluster" not in request.fixturenames:
        yield
        return
    lab: Lab = request.getfixturevalue("cluster")
    eventually(lambda: agents_ready(lab), "an agent ready on every node", seconds=60)
    wait_for_web(lab)
    reset_lock_transitions(lab)
    yield
    for node in lab.nodes:
        lab.mend(node)
        lab.heal(node)


_numbers = itertools.count(1)
_PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def make_service(cluster: Lab) -> Iterator[Callable[..., str]]:
    """Create a Service for the web server; returns its path. Deleted after the test."""
    made: list[str] = []

    def make(
        policy: str = "RequireDualStack",
        *,
        annotations: dict[str, str] | None = None,
        **spec: Any,
    ) -> str:
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": f"web-{next(_numbers)}",
                "namespace": "default",
                "annotations": annotations or {},
            },
            "spec": {
                "type": "LoadBalancer",
                "ipFamilyPolicy": policy,
                "selector": {"app": "web"},
                "ports": [{"port": 80, "targetPort": 8080}],
                **spec,
            },
        }
        path = cluster.api.path_of(cluster.api.create(service))
        made.append(path)
        return path

    yield make
    for path in made:
        cluster.api.delete(path)


@pytest.fixture
def holder_by_vip(cluster: Lab, make_service: Callable[..., str]) -> dict[str, str]:
    """The addresses of three Services, of both families, and the node that has each."""
    # A cluster takes nodes for dead whose kubelets cannot report, and their pods out of Services.
    paths = [make_service(publishNotReadyAddresses=True) for _number in range(3)]
    vips = [vip for path in paths for vip in addresses_of(cluster, path)]
    return {vip: holder(cluster, vip) for vip in vips}


@pytest.fixture
def label_pod_on(cluster: Lab) -> Iterator[Callable[[str], None]]:
    """Give the label `here` to the web server's pod on one node, and take it from all others."""

    def pods() -> list[dict[str, Any]]:
        return cluster.api.items(
            _PODS, labelSelector="app=web", fieldSelector="status.phase=Running"
        )

    def put(node: str) -> None:
        for pod in sorted(pods(), key=lambda p: p["spec"]["nodeName"] != node):
            value = "yes" if pod["spec"]["nodeName"] == node else None
            patch = {"metadata": {"labels": {"here": value}}}
            cluster.api.merge_patch(f"{_PODS}/{pod['metadata']['name']}", patch)

    yield put
    put("")


@pytest.fixture
def control_plane(cluster: Lab, make_service: Callable[..., str]) -> Iterator[None]:
    """Whatever a test stopped runs again after it, and the cluster has noticed."""
    yield
    restarts.restart_control_plane(cluster)
    restarts.restart_clients(cluster)
    restarts.wait_until_noticed(cluster, f"noticed-{next(_numbers)}")
    wait_for_web(cluster)

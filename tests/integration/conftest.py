# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all integration tests: the lab with PureLB, a pool and a web server; Services.

`cluster` is installed once for all tests. A test of the cluster starts when every agent is ready;
its Services are deleted afterwards.
"""

from __future__ import annotations

import itertools
import subprocess
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from labkit.lab import Lab
from tests.support.lab import installation, restarts, workers
from tests.support.lab.cluster_queries import (
    Logs,
    addresses_of,
    error_lines,
    eventually,
    holder,
    leftovers,
    reset_lock_transitions,
    unready_agents,
)
from tests.support.lab.faults import (
    agents_replaced,
    duplicates_in_leases,
    replace_agents,
    wait_for_candidates,
)
from tests.support.lab.readiness import LabReadiness

workers.choose_lab()
_readiness = LabReadiness()


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(workers.Figures(config))
    config.pluginmanager.register(_readiness)


@pytest.fixture
def figure(record_property: Callable[[str, object], None]) -> Callable[[str], None]:
    """Record a measured figure, which is printed with the test's outcome."""
    return partial(record_property, workers.FIGURE)


@pytest.fixture(scope="session")
def lab() -> Lab:
    """The lab of this process."""
    return _readiness.lab()


@pytest.fixture(scope="session")
def playbook(lab: Lab) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        return installation.run_playbook(lab, *arguments, check=check)

    return run


@pytest.fixture(scope="session")
def cluster(lab: Lab) -> Lab:
    """The lab with PureLB, a ServiceGroup and a web server that answers with its pod's name."""
    # Installed before the time limit of the first test that asks for it.
    return _readiness.lab()


@pytest.fixture(scope="session")
def purelb_is_changed() -> Callable[[], None]:
    """Let PureLB be installed again before the next test that asks for it, if there is one."""
    return _readiness.purelb_is_changed


@pytest.fixture(scope="session")
def install_purelb(lab: Lab) -> Callable[..., None]:
    """Install PureLB, the ServiceGroup and the web server again; takes the name of an image."""
    return partial(installation.install, lab)


@pytest.fixture(scope="module")
def lab_without_purelb(lab: Lab) -> Iterator[Lab]:
    """The lab with the image and the web server, but without PureLB, for the tests of one file."""
    lab.load_image(installation.ARCHIVE)
    installation.remove(lab)
    installation.install_web_server(lab)
    yield lab
    installation.remove(lab)
    _readiness.purelb_is_changed()


@pytest.fixture(scope="session")
def logs(cluster: Lab) -> Iterator[Logs]:
    followed = Logs(cluster)
    yield followed
    followed.close()


@pytest.fixture(autouse=True)
def _no_unexpected_errors(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test during which our programs logged errors, except those of `expects_errors`."""
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
def _healthy_cluster(
    request: pytest.FixtureRequest,
    _no_unexpected_errors: None,  # set up first, so that it sees errors of the wait and the repair
) -> Iterator[None]:
    """Start each test of the cluster with ready agents and web server; end faults afterwards."""
    if "cluster" not in request.fixturenames:
        yield
        return
    lab: Lab = request.getfixturevalue("cluster")
    with _readiness.breaks_lab():
        # A terminating agent counts as ready for a while, but its addresses are on another node.
        eventually(lambda: agents_replaced(lab), partial(unready_agents, lab), seconds=60)
        installation.wait_for_web(lab)
    reset_lock_transitions(lab)
    yield
    for node in lab.nodes:
        lab.mend(node)
        lab.heal(node)


@pytest.fixture
def forget_duplicates(cluster: Lab) -> Iterator[None]:
    """After the test, replaces the agents that list addresses in their Leases as another host's."""
    yield

    def forgotten() -> bool:
        # An agent lists half a second later what it has found.
        time.sleep(1)
        listing = duplicates_in_leases(cluster)
        replace_agents(cluster, *listing)
        return not listing

    eventually(forgotten, "Leases without duplicates", seconds=60)


_numbers = itertools.count(1)
_PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def make_service(cluster: Lab) -> Iterator[Callable[..., str]]:
    """Creates a Service for the web server, deleted after the test; returns its path."""
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

    # An address that the test before left would count as this test's, and then be withdrawn.
    eventually(lambda: not leftovers(cluster), "withdrawal of former addresses", seconds=30)
    yield make
    for path in made:
        cluster.api.delete(path)


@pytest.fixture
def holder_by_vip(cluster: Lab, make_service: Callable[..., str]) -> dict[str, str]:
    """The holder of each address of three dual-stack Services."""
    # A node that was cut off until now has a ready agent for the cluster, but no valid Lease yet.
    wait_for_candidates(cluster, "172.28.1.0/24", "fd28:0:0:1::/64")
    # A node whose kubelet cannot report counts as dead, and its pods are not ready any more.
    paths = [make_service(publishNotReadyAddresses=True) for _number in range(3)]
    vips = [vip for path in paths for vip in addresses_of(cluster, path)]
    return {vip: holder(cluster, vip) for vip in vips}


@pytest.fixture
def label_pod_on(cluster: Lab) -> Iterator[Callable[[str], None]]:
    """Puts the label `here` on the web server's pod on one node and removes it from all others."""

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
    """After the test, restarts the control plane and waits until its clients work again."""
    yield
    restarts.restart_control_plane(cluster)
    restarts.restart_clients(cluster)
    restarts.wait_until_noticed(cluster, f"noticed-{next(_numbers)}")
    installation.wait_for_web(cluster)

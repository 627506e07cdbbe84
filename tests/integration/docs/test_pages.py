# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Runs every command of README.md, docs/ and the roles' READMEs exactly as written.

A page starts in the cluster that the README makes: with PureLB, a ServiceGroup `default` and a
Service `web`. Pages in `BEFORE` start with another state, and run after all others. After each page
its changes are undone; PureLB is installed again before the next test that asks for it.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from labkit.lab import Lab
from purelb.core.names import SUBNETS_ANNOTATION
from tests.support.docs.doc_runner import IMAGE, SUBNETS, Reader, is_left_out
from tests.support.docs.pages import PAGES, Run, read, steps
from tests.support.lab.cluster_queries import (
    DAEMON_SET,
    LEASES,
    addresses_of,
    agents_ready,
    eventually,
    reset_lock_transitions,
    unready_agents,
)
from tests.support.lab.cluster_queries import IMAGE as OWN_IMAGE
from tests.support.v1 import v1_install

# A rotation of the agents' key alone takes four minutes.
pytestmark = pytest.mark.timeout(900)

# The fixture of a page's initial state, if it is not `at_work`.
BEFORE = {
    "README.md": "nothing",
    "docs/install.md": "nothing",
    "docs/migrate.md": "first_generation",
}
FOLLOWED = [
    page
    for page in sorted(PAGES, key=BEFORE.__contains__)
    if any(isinstance(step, Run) and not is_left_out(step) for step in steps(read(page)))
]
GROUP = {
    "apiVersion": "purelb.io/v2",
    "kind": "ServiceGroup",
    "metadata": {"name": "default", "namespace": "purelb-system"},
    "spec": {
        "local": {
            "v4pool": {"subnet": "192.168.1.0/24", "pool": "192.168.1.240-192.168.1.250"},
            "v6pool": {"subnet": "fd00:1::/64", "pool": "fd00:1::100-fd00:1::1ff"},
        }
    },
}
WEB = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web", "namespace": "default"},
    "spec": {
        "type": "LoadBalancer",
        "ipFamilyPolicy": "RequireDualStack",
        "selector": {"app": "web"},
        "ports": [{"port": 80, "targetPort": 8080}],
    },
}
# Storage for pages that need a volume.
VOLUME: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "of-the-pages"},
    "spec": {
        "accessModes": ["ReadWriteMany"],
        "capacity": {"storage": "1Mi"},
        "persistentVolumeReclaimPolicy": "Retain",
    },
}
POOLS = "/apis/purelb.io/v2/namespaces/purelb-system"
# Objects that a page may leave, dependents first.
COLLECTIONS = (
    "/api/v1/namespaces/default/services",
    f"{POOLS}/servicegroups",
    f"{POOLS}/lbnodeagents",
    "/api/v1/namespaces/purelb-system/secrets",
    "/api/v1/namespaces/purelb-system/configmaps",
    "/api/v1/namespaces/purelb-system/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/api/v1/namespaces",
)
_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
INSTALLED = (
    DAEMON_SET,
    "/apis/apps/v1/namespaces/purelb-system/deployments/allocator",
    f"{_CRDS}/servicegroups.purelb.io",
    f"{_CRDS}/lbnodeagents.purelb.io",
)
NODES = "/api/v1/nodes"


def names_in(lab: Lab, path: str) -> set[str]:
    """Return the names of the objects in a list; empty if the kind is not defined."""
    return {item["metadata"]["name"] for item in (lab.api.find(path) or {"items": ()})["items"]}


class Installation:
    """PureLB with the pages' image, installed again only if it was changed."""

    def __init__(
        self,
        lab: Lab,
        install_purelb: Callable[..., None],
        remove: Callable[[], object],
        folder: Path,
    ) -> None:
        """Install nothing yet; the image is built in a folder below this one."""
        self._lab, self._install, self.remove = lab, install_purelb, remove
        self._folder = folder
        self._usual: list[tuple[str, int]] = []
        self._has_image = False

    @property
    def is_used(self) -> bool:
        """Whether a page has begun with it."""
        return bool(self._usual)

    def _seen(self) -> list[tuple[str, int]]:
        """Return a value that changes with every change of the installation."""
        found = [(self._lab.api.find(path) or {}).get("metadata", {}) for path in INSTALLED]
        return [(meta.get("uid", ""), meta.get("generation", 0)) for meta in found]

    def ensure(self) -> None:
        """Install PureLB if it was changed, and wait until every node has its agent."""
        self.load_image()
        if self._seen() != self._usual:
            self._install(IMAGE)
            self._usual = self._seen()
        eventually(lambda: agents_ready(self._lab), partial(unready_agents, self._lab), seconds=60)

    def load_image(self) -> None:
        """Load the pages' image into the nodes, unless a page has begun with it."""
        if self._has_image:
            return
        self._has_image = True
        folder = self._folder / "builder"
        folder.mkdir()
        someone = Reader(self._lab, folder)
        someone.run(f"podman build --file agent/Dockerfile --tag {IMAGE} .; podman push {IMAGE}")
        shutil.rmtree(folder)


@pytest.fixture(scope="module")
def installation(
    cluster: Lab,
    install_purelb: Callable[..., None],
    playbook: Callable[..., object],
    purelb_is_changed: Callable[[], None],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    """The installation that the pages change."""
    gone = "purelb_install_state=absent purelb_install_remove_crds=true"
    remove = partial(playbook, "purelb.purelb.install", "-e", gone)
    yield Installation(cluster, install_purelb, remove, tmp_path_factory.mktemp("pages"))
    purelb_is_changed()


@pytest.fixture(scope="module")
def addressed(cluster: Lab, installation: Installation) -> Iterator[Lab]:
    """The lab with addresses in the pages' subnets, without the pool of the other tests."""
    cluster.api.delete(f"{POOLS}/servicegroups/default")
    added = [
        (host, pattern.format(first + number))
        for number, host in enumerate((*cluster.nodes, "client"))
        for pattern, first in SUBNETS.items()
    ]
    for host, address in added:
        cluster.run_in(host, ["ip", "addr", "add", address, "dev", "eth0", "nodad"])
    yield cluster
    for host, address in added:
        cluster.run_in(host, ["ip", "addr", "del", address, "dev", "eth0"])


@pytest.fixture(autouse=True)
def _healthy_cluster() -> None:
    """Replaces the fixture of other tests, as some pages start without PureLB."""


@pytest.fixture
def undone(addressed: Lab, installation: Installation) -> Iterator[None]:
    """Undo a page's changes after it; removed PureLB is not installed again."""
    known = {path: names_in(addressed, path) for path in COLLECTIONS}
    yield
    # The nodes first: the web server has a pod on each.
    for node in addressed.nodes:
        restore(addressed, node)
    if installation.is_used and addressed.api.exists(DAEMON_SET):
        installation.ensure()
    added = [
        f"{path}/{name}"
        for path, names in known.items()
        for name in names_in(addressed, path) - names
    ]
    for path in added:
        addressed.api.delete(path)
    # The next page may make one of the same name, as it does with the volume.
    for path in added:
        addressed.api.wait(path, lambda seen: seen is None, what=f"end of {path}", seconds=90)


def restore(lab: Lab, node: str) -> None:
    """Remove a page's taints and cordon from a node."""
    found = lab.api.find(f"{NODES}/{node}")
    if found is None:
        lab.kill(node, "kubelet")
        lab.start(node, "kubelet")
        lab.api.wait(f"{NODES}/{node}", what=f"node {node}", seconds=30)
    elif found["spec"].get("taints"):
        lab.api.merge_patch(f"{NODES}/{node}", {"spec": {"taints": None, "unschedulable": None}})


@pytest.fixture
def nothing(installation: Installation, undone: None) -> None:
    """A cluster without PureLB."""
    installation.remove()


@pytest.fixture
def first_generation(nothing: None, installation: Installation, addressed: Lab) -> Iterator[None]:
    """A cluster with a PureLB of v1 that serves two Services."""
    services = v1_install.provide(addressed, OWN_IMAGE)
    # Until Pods have started, which takes longer than an address of a running agent.
    held = v1_install.WEB + v1_install.SHOP
    eventually(lambda: all(map(addressed.holders, held)), "v1 at work", seconds=60)
    for path in services:
        addresses_of(addressed, path)
    yield
    installation.remove()
    v1_install.remove(addressed)


@pytest.fixture
def at_work(undone: None, installation: Installation, addressed: Lab, tmp_path: Path) -> None:
    """The cluster that the README makes, with a volume for claims."""
    installation.ensure()
    reset_lock_transitions(addressed)
    # An agent may have listed its subnets before the pages' addresses came.
    eventually(lambda: in_their_subnets(addressed), "Leases with the pages' subnets")
    addressed.api.apply(GROUP)
    service = addressed.api.path_of(addressed.api.create(WEB))
    folder = tmp_path / "volume"
    folder.mkdir()
    folder.chmod(0o777)
    volume = {**VOLUME, "spec": {**VOLUME["spec"], "hostPath": {"path": str(folder)}}}
    addressed.api.apply(volume)
    addresses_of(addressed, service)
    # Two nodes may announce one family each, in two separate writes.
    eventually(
        lambda: len(announced(addressed, service)) == len(SUBNETS), "both families announced"
    )


def in_their_subnets(lab: Lab) -> bool:
    """Whether each node's Lease lists the subnet of the pages' pools."""
    leases = [lab.api.find(f"{LEASES}/purelb-node-{node}") or {} for node in lab.nodes]
    listed = [lease.get("metadata", {}).get("annotations", {}) for lease in leases]
    return all("192.168.1.0/24" in each.get(SUBNETS_ANNOTATION, "") for each in listed)


def announced(lab: Lab, path: str) -> list[str]:
    """Return the announcing annotations of a Service."""
    annotations = lab.api.get(path)["metadata"].get("annotations", {})
    return [key for key in annotations if key.startswith("purelb.io/announcing-")]


@pytest.fixture
def reader(
    request: pytest.FixtureRequest,
    addressed: Lab,
    installation: Installation,
    page: str,
    tmp_path: Path,
) -> Iterator[Reader]:
    """A reader in the initial state of the page."""
    someone = Reader(addressed, tmp_path)
    text = read(page)
    if "ansible-galaxy collection install" not in text:
        someone.run("ansible-galaxy collection install .")
    if "podman build" not in text:
        installation.load_image()
    request.getfixturevalue(BEFORE.get(page, "at_work"))
    yield someone
    shutil.rmtree(tmp_path)


@pytest.mark.parametrize(
    "page",
    [p if p == "README.md" else pytest.param(p, marks=pytest.mark.thorough) for p in FOLLOWED],
)
def test_page_can_be_followed_literally(reader: Reader, page: str):
    reader.follow(page)

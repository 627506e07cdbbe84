# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Bring a lab up: namespaces and certificates first, then the components.

The order makes it fast on two cores: containerd starts together with the API server, and the
kubelets start when the API server is ready, so that none of them waits in a backoff.
"""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from labkit import topology as plan
from labkit.api import Api, ApiError, Json
from labkit.cluster import (
    control,
    daemons,
    keeper,
    kubeconfigs,
    node_images,
    nodes,
    state,
)
from labkit.cluster.state import Daemon
from labkit.errors import StepFailed
from labkit.host import cgroups
from labkit.host.places import Places
from labkit.host.processes import wait_until
from labkit.host.progress import Stopwatch
from labkit.images import bases
from labkit.images.programs import Programs, programs
from labkit.net import network, stand_ins
from labkit.topology import Host, Topology

_SLOW = 90.0  # seconds; several times what a busy machine needs


def bring_up(at: Places, topology: Topology, *, watch: Stopwatch) -> None:
    """Start the lab; after an exception, the caller must take it down."""
    for name in ("logs", "daemons"):
        (at.run / name).mkdir(parents=True)
    state.save_topology(at, topology)
    have = programs(at)
    with ThreadPoolExecutor(max_workers=2) as pool:
        pki = pool.submit(_write_files, at, topology)
        network.build(topology, owner=at.run)
        watch.stage(f"network: {len(topology.lans)} lan(s), {len(topology.hosts)} hosts")
        pki.result()
    control_plane = _start_store_and_api(at, topology, have)
    _start_runtimes(at, topology, have)
    watch.stage("containerd on every node")
    api = Api(at.run / "pki", topology.api_v4)
    _wait("the API server", api.is_ready, at, control_plane)
    watch.stage("API server ready")
    control_plane += _start_controllers(at, topology, have)
    kubelets = [d for node in topology.nodes for d in _start_node(at, topology, node, have)]
    daemons.start(at, topology.host("control"), keeper.NAME, keeper.command())
    if stand_ins.wanted(topology):
        daemons.start(at, topology.host("control"), stand_ins.NAME, stand_ins.command())
    _wait("Ready nodes", lambda: _all_ready(api, topology), at, [*control_plane, *kubelets])
    state.mark_ready(at)
    watch.stage(f"{len(topology.nodes)} nodes Ready")


def _write_files(at: Places, topology: Topology) -> None:
    from labkit.cluster import certificates  # noqa: PLC0415 - its library comes with setup

    pki = at.run / "pki"
    certificates.make(topology, pki)
    (at.run / "audit-policy.yaml").write_text(control.AUDIT_POLICY)
    local = f"https://127.0.0.1:{plan.API_PORT}"
    remote = f"https://{topology.host('control').v4}:{plan.API_PORT}"
    _write_kubeconfig(at.kubeconfig, pki, "admin", f"https://{topology.api_v4}:{plan.API_PORT}")
    for name in ("kube-controller-manager", "kube-scheduler"):
        _write_kubeconfig(at.run / f"{name}.kubeconfig", pki, name, local)
    _write_kubeconfig(at.run / "kube-proxy.kubeconfig", pki, "kube-proxy", remote)
    cgroups.make(at.cgroup, [n.name for n in topology.nodes])
    for node in topology.nodes:
        folder = at.run / node.name
        nodes.write_files(node, folder, pki=pki, cgroup=at.cgroup)
        _write_kubeconfig(folder / "kubelet.kubeconfig", pki, node.name, remote)


def _write_kubeconfig(path: Path, pki: Path, identity: str, server: str) -> None:
    path.touch(mode=0o600)
    path.write_text(kubeconfigs.kubeconfig(pki, identity, server))


def _start_store_and_api(at: Places, topology: Topology, have: Programs) -> list[Daemon]:
    host, hyper = topology.host("control"), str(have.kubernetes)
    return [
        daemons.start(at, host, "etcd", [hyper, *control.etcd(at.run)]),
        daemons.start(at, host, "kube-apiserver", [hyper, *control.apiserver(topology, at.run)]),
    ]


def _start_controllers(at: Places, topology: Topology, have: Programs) -> list[Daemon]:
    host, hyper = topology.host("control"), str(have.kubernetes)
    manager, scheduler = control.controller_manager(at.run), control.scheduler(at.run)
    return [
        daemons.start(at, host, "kube-controller-manager", [hyper, *manager]),
        daemons.start(at, host, "kube-scheduler", [hyper, *scheduler]),
    ]


def _start_runtimes(at: Places, topology: Topology, have: Programs) -> None:
    for node in topology.nodes:
        daemons.start_holder(at, node)
    for node in topology.nodes:
        mounted = at.run / node.name / "mounted"
        if not wait_until(mounted.exists, seconds=10):
            log = daemons.log_of(at, f"{node.name}.{daemons.HOLDER}")
            raise StepFailed(f"mounts of {node.name}", "not made within 10 s", log=log)
        program, *arguments = nodes.containerd(at.run / node.name)
        argv = [str(have.containerd.with_name(program)), *arguments]
        daemons.start(at, node, "containerd", argv, in_mounts=True)
    for node in topology.nodes:
        node_images.wait_for_runtime(at, node)
    node_images.load(at, bases.archive(at, bases.PAUSE), topology.nodes)


def _start_node(at: Places, topology: Topology, node: Host, have: Programs) -> Iterable[Daemon]:
    hyper, folder = str(have.kubernetes), at.run / node.name
    kubelet = [hyper, *nodes.kubelet(node, folder)]
    yield daemons.start(at, node, "kubelet", kubelet, in_mounts=True)
    yield daemons.start(at, node, "kube-proxy", [hyper, *nodes.kube_proxy(topology, node, at.run)])


def _wait(what: str, test: Callable[[], bool], at: Places, needed: list[Daemon]) -> None:
    def is_so() -> bool:
        for daemon in needed:
            daemons.check_alive(at, daemon)
        return test()

    if not wait_until(is_so, seconds=_SLOW, every=0.05):
        log = daemons.log_of(at, needed[-1].key)
        raise StepFailed(f"waiting for {what}", f"not there after {_SLOW:.0f} s", log=log)


def _all_ready(api: Api, topology: Topology) -> bool:
    """Whether pods can be created: every node is Ready and the default ServiceAccount exists."""
    try:
        account = "/api/v1/namespaces/default/serviceaccounts/default"
        return ready_nodes(api) == {n.name for n in topology.nodes} and api.exists(account)
    except (OSError, ApiError):
        return False


def ready_nodes(api: Api) -> set[str]:
    """Return the names of the nodes that are Ready."""
    return {n["metadata"]["name"] for n in api.items("/api/v1/nodes") if _is_ready(n)}


def _is_ready(node: Json) -> bool:
    conditions = node["status"].get("conditions", [])
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

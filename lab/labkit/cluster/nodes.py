# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""A node's files and command lines: mount namespace, containerd, CNI, kubelet, kube-proxy.

What these programs write under /run, /var/lib and /var/log goes to folders of the node, by
overlays in a mount namespace that kubelet and containerd share. The machine's folders stay as they
are.
"""

import json
from pathlib import Path

from labkit import topology as plan
from labkit.images.bases import PAUSE
from labkit.topology import Host, Topology

# Path inside the node's mount namespace -> folder of the node. These are bind mounts, because
# containerd's snapshots are overlays, and an overlay cannot be the upper layer of another.
BINDS = {
    "/run/containerd": "run",
    "/var/lib/containerd": "images",
    "/var/lib/kubelet": "kubelet",
    "/var/lib/cni": "cni-state",
    "/var/log/pods": "pods",
    "/var/log/containers": "links",
}
OVERLAYS = {"/run": "over-run", "/var/lib": "over-lib", "/var/log": "over-log"}
SOCKET = "/run/containerd/containerd.sock"

_CONTAINERD = """\
version = 3
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.nri.v1.nri"]
[grpc]
  address = "{socket}"
[plugins.'io.containerd.cri.v1.images']
  snapshotter = "overlayfs"
  [plugins.'io.containerd.cri.v1.images'.pinned_images]
    sandbox = "{pause}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  [plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "{folder}/cni"
"""


def write_files(host: Host, folder: Path, *, pki: Path, cgroup: str) -> None:
    """Write the configuration of a node into its folder."""
    names = [
        *BINDS.values(),
        *(f"{o}/{part}" for o in OVERLAYS.values() for part in ("up", "work")),
    ]
    for name in ["cni", *names]:
        (folder / name).mkdir(parents=True)
    (folder / "mounts.sh").write_text(mount_script(folder))
    config = _CONTAINERD.format(socket=SOCKET, pause=PAUSE, folder=folder)
    (folder / "containerd.toml").write_text(config)
    (folder / "cni/10-lab.conflist").write_text(json.dumps(cni(host), indent=1))
    config = json.dumps(kubelet_config(host, pki=pki, cgroup=cgroup), indent=1)
    (folder / "kubelet.json").write_text(config)


def mount_script(folder: Path) -> str:
    """Return the script that sets up a new mount namespace and then keeps it open.

    The mounts are shared among the node's processes (pods must see the kubelet's token volumes),
    but never with the machine.
    """
    lines = ["set -e", "mount --make-rprivate /"]
    for path, name in OVERLAYS.items():
        options = f"lowerdir={path},upperdir={folder}/{name}/up,workdir={folder}/{name}/work"
        lines.append(f"mount -t overlay overlay -o {options} {path}")
    for path, name in BINDS.items():
        lines.append(f"mkdir -p {path} && mount --bind {folder}/{name} {path}")
    lines += ["mount --make-rshared /", f"touch {folder}/mounted", "exec sleep infinity"]
    return "\n".join(lines) + "\n"


def cni(host: Host) -> dict[str, object]:
    """Return the CNI configuration: a bridge and addresses of both families."""
    ipam = {
        "type": "host-local",
        "ranges": [[{"subnet": host.pods_v4}], [{"subnet": host.pods_v6}]],
        "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}],
    }
    bridge = {"type": "bridge", "bridge": "cni0", "isGateway": True, "hairpinMode": True}
    return {"cniVersion": "1.0.0", "name": "lab", "plugins": [bridge | {"ipam": ipam}]}


def kubelet_config(host: Host, *, pki: Path, cgroup: str) -> dict[str, object]:
    """Return the KubeletConfiguration."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "authentication": {
            "anonymous": {"enabled": False},
            "webhook": {"enabled": False},
            "x509": {"clientCAFile": f"{pki}/ca.crt"},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "tlsCertFile": f"{pki}/{host.name}.crt",
        "tlsPrivateKeyFile": f"{pki}/{host.name}.key",
        "containerRuntimeEndpoint": f"unix://{SOCKET}",
        "volumePluginDir": "/var/lib/kubelet/plugins-exec",
        # A node is a namespace, not a machine: it shares the machine's cgroups, of either version.
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": f"/{cgroup}/{host.name}",
        "cgroupsPerQOS": True,
        "enforceNodeAllocatable": [],
        "failCgroupV1": False,
        "failSwapOn": False,
        "localStorageCapacityIsolation": False,
        "makeIPTablesUtilChains": False,
        "resolvConf": "",
        # The node does not own the machine's disk and memory: never evict pods or collect images.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "1Mi",
            "nodefs.available": "0%",
            "imagefs.available": "0%",
        },
        # Four renewals, every 5 s, fit into the controller's grace period (control.py).
        "nodeLeaseDurationSeconds": 20,
    }


def containerd(folder: Path) -> list[str]:
    """Return the command line of the container runtime."""
    return ["containerd", "--config", f"{folder}/containerd.toml"]


def kubelet(host: Host, folder: Path) -> list[str]:
    """Return the command line of the kubelet."""
    return [
        "kubelet",
        f"--kubeconfig={folder}/kubelet.kubeconfig",
        f"--config={folder}/kubelet.json",
        f"--hostname-override={host.name}",
        f"--node-ip={host.v4},{host.v6}",
        "--v=2",
    ]


def kube_proxy(topology: Topology, host: Host, run: Path) -> list[str]:
    """Return the command line of kube-proxy."""
    mode = "iptables" if "iptables" in topology.variants else "nftables"
    return [
        "kube-proxy",
        f"--kubeconfig={run}/kube-proxy.kubeconfig",
        f"--proxy-mode={mode}",
        f"--hostname-override={host.name}",
        f"--cluster-cidr={plan.POD_V4},{plan.POD_V6}",
        # Connection tracking limits are the machine's: do not change them.
        "--conntrack-max-per-core=0",
        "--conntrack-tcp-timeout-established=0",
        "--conntrack-tcp-timeout-close-wait=0",
        "--metrics-bind-address=127.0.0.1:10249",
        "--healthz-bind-address=127.0.0.1:10256",
    ]

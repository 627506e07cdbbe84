# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Checks before the lab starts; each raises a Problem of one line that says what to do."""

import importlib.util
import ipaddress
import json
import os
import shutil
import subprocess
from collections.abc import Collection
from pathlib import Path

from labkit.cluster.remnants import remnants
from labkit.errors import Problem
from labkit.host import cgroups, packages
from labkit.host.places import Places
from labkit.images import bases
from labkit.images.programs import programs
from labkit.net.namespaces import path_of
from labkit.topology import Topology

MIN_FREE_UP = 2  # GiB; a lab of four nodes with images took 1
# The nodes' overlays cover these, and an overlay cannot contain its own layers (nodes.py).
_COVERED = ("/run", "/var/run", "/var/lib", "/var/log")
# What the kernel must have: the package of the program that tries it, its name, and the attempt.
_LINKS = """
ip link add lab-try0 type veth peer name lab-try1
ip link add lab-try2 type bridge
ip link add lab-try3 type ifb
"""
_OVERLAY = """
mount -t tmpfs tmpfs /mnt
cd /mnt
mkdir lower upper work all
mount -t overlay -o lowerdir=lower,upperdir=upper,workdir=work overlay all
"""
_KERNEL = (
    ("iproute2", "veth, bridge and ifb links", _LINKS),
    ("iproute2", "IPv6", "ip addr add fd28::1/64 dev lo"),
    ("nftables", "nftables", "nft add table inet lab-try"),
    ("mount", "overlay mounts", _OVERLAY),
)
_ELSE = "set LAB_NUMBER to a number that no lab uses"


def check_root(uid: int | None = None) -> None:
    """Refuse to run unless the user is root."""
    if (os.geteuid() if uid is None else uid) != 0:
        raise Problem("the lab makes network namespaces and mounts: run it as root")


def check_disk(folder: Path, *, gib: int, free: int | None = None) -> None:
    """Refuse a disk with less free space than needed."""
    while not folder.exists():
        folder = folder.parent
    have = shutil.disk_usage(folder).free if free is None else free
    if have < gib << 30:
        raise Problem(f"{have / (1 << 30):.1f} GiB are free at {folder}: the lab needs {gib} GiB")


def check_folder(at: Places) -> None:
    """Refuse a run folder that the nodes' overlays cannot use."""
    for path in _COVERED:
        if at.run.is_relative_to(path):
            raise Problem(f"{at.cache} is under {path}: set PURELB_LAB_CACHE to a folder elsewhere")
    if set(str(at.run)) & set(" ,:\\"):
        raise Problem(f"{at.run} has a space, comma or colon in it: use another folder")


def check_up(at: Places, topology: Topology) -> None:
    """Check everything that `up` needs; an earlier lab of this number must have been taken down."""
    check_folder(at)
    check_disk(at.run, gib=MIN_FREE_UP)
    library = [] if importlib.util.find_spec("cryptography") else ["Python's cryptography"]
    if absent := [*packages.missing(packages.lab()), *library]:
        raise Problem(f"not installed: {', '.join(absent)}: run 'lab setup'")
    no_image = [] if bases.pause_build(at).is_done else ["pause image"]
    if unbuilt := programs(at).missing() + no_image:
        raise Problem(f"not built: {', '.join(unbuilt)}: run 'lab setup'")
    check_names(at, topology)
    check_kernel()


def check_names(at: Places, topology: Topology) -> None:
    """Refuse if a name or address that the lab needs is in use."""
    for other in remnants(at):
        raise Problem(
            f"the lab of {other.owner} is up with the number {at.number}: take it down with"
            f" 'lab down' there, or {_ELSE}"
        )
    for name in topology.namespaces:
        if path_of(name).exists():
            raise Problem(
                f"network namespace {name} exists and belongs to no lab: remove it with"
                f" 'ip netns del {name}', or {_ELSE}"
            )
    if Path("/sys/class/net", topology.host_link).exists():
        raise Problem(
            f"link {topology.host_link} exists and belongs to no lab: remove it with"
            f" 'ip link del {topology.host_link}', or {_ELSE}"
        )
    check_subnets(topology, _addresses())


def check_subnets(topology: Topology, addresses: list[tuple[str, str]]) -> None:
    """Refuse if a (link, address/length) of the machine overlaps the host link's subnets."""
    pairs = (topology.link_v4, topology.link_v6)
    needed = [ipaddress.ip_interface(address).network for address, _control in pairs]
    for link, text in addresses:
        network = ipaddress.ip_interface(text).network
        for need in needed:
            if network.version == need.version and network.overlaps(need):
                raise Problem(
                    f"link {link} has {text}, and the lab needs {need}: remove it, or {_ELSE}"
                )


def _addresses() -> list[tuple[str, str]]:
    done = subprocess.run(["ip", "-json", "addr"], text=True, capture_output=True, check=True)
    return [
        (link["ifname"], f"{a['local']}/{a['prefixlen']}")
        for link in json.loads(done.stdout)
        for a in link.get("addr_info", [])
        if "local" in a
    ]


def check_kernel(*, absent: Collection[str] = ()) -> None:
    """Refuse a kernel without what the lab needs; tried in temporary namespaces.

    What needs one of the absent packages is not tried.
    """
    if not any(cgroups.hierarchies()):
        raise Problem("there are no control groups at /sys/fs/cgroup: mount them")
    for package, what, script in _KERNEL:
        if package in absent:
            continue
        done = subprocess.run(
            ["unshare", "--net", "--mount", "--", "sh", "-ec", script],
            text=True, capture_output=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise Problem(
                f"this kernel has no {what} ({_first(done.stderr)}):"
                " boot one that has them, or load their modules"
            )


def _first(text: str) -> str:
    return text.strip().splitlines()[0] if text.strip() else "no reason given"

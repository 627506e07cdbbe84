# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The Debian packages that setup installs, and the file by which each is recognised.

The base is what every Debian has, even one made by `debootstrap --variant=minbase`. The gate hides
all other files of the machine from what it runs, so a program of a package that is missing here is
missing there, too.
"""

import sys
from collections.abc import Mapping
from pathlib import Path

# Of the lab, the demo, the image build and the benchmarks.
LAB = {
    "iproute2": "/sbin/ip",
    "nftables": "/usr/sbin/nft",
    "runc": "/usr/sbin/runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "debootstrap": "/usr/sbin/debootstrap",
    "buildah": "/usr/bin/buildah",
    "ca-certificates": "/etc/ssl/certs/ca-certificates.crt",
    "tcpdump": "/usr/bin/tcpdump",
    "iputils-ping": "/usr/bin/ping",
    "curl": "/usr/bin/curl",
    "frr": "/usr/lib/frr/bgpd",
}
# Of the checks and tests in addition.
TESTS = {
    "git": "/usr/bin/git",
    # Of kube-proxy in iptables mode.
    "iptables": "/usr/sbin/iptables",
    "openssl": "/usr/bin/openssl",
    "faketime": "/usr/bin/faketime",
    "chromium": "/usr/bin/chromium",
    "prometheus": "/usr/bin/promtool",
}
# What the benchmarks compare with.
BENCH = {"keepalived": "/usr/sbin/keepalived"}
# Of tests in a virtual machine.
MACHINE = {"qemu-system-x86": "/usr/bin/qemu-system-x86_64"}
# Debian's Python comes without the module that makes virtual environments.
_OF_PYTHON = {"python3-venv": "/usr/lib/python3.11/ensurepip"}


def lab() -> Mapping[str, str]:
    """Return the packages of the lab on this machine."""
    return LAB | _OF_PYTHON if sys.base_prefix == "/usr" else LAB


def missing(packages: Mapping[str, str]) -> list[str]:
    """Return the names of those Debian packages that are not installed."""
    return [name for name, file in packages.items() if not Path(file).exists()]

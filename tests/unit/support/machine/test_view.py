# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import subprocess
import sys

from labkit.host import packages
from tests.support import ROOT


def seen(which: str, script: str) -> subprocess.CompletedProcess[str]:
    view = [sys.executable, "-m", "tests.support.machine.view", which, "--"]
    return subprocess.run(
        [*view, "sh", "-c", script], cwd=ROOT, env={**os.environ, "PYTHONPATH": ".:lab"},
        text=True, capture_output=True, check=False,
    )  # fmt: skip


def test_lab_sees_no_program_and_no_library_of_the_packages_of_tests():
    alone = {name: packages.TESTS[name] for name in ("faketime", "prometheus", "chromium", "git")}
    done = seen("lab", f"ls -d {' '.join(alone.values())} /usr/lib/*/faketime /opt/* 2>/dev/null")
    wheels = os.environ.get("PIP_FIND_LINKS", "")
    assert set(done.stdout.split()) <= {wheels}


def test_tests_see_what_their_targets_install_and_go_and_python_wherever_they_are():
    paths = [*packages.lab().values(), *packages.TESTS.values(), "/usr/bin/make"]
    script = "; ".join(f"test -e {path} || echo no {path}" for path in paths)
    version = "python3 -c 'import sys; print(sys.version_info[:2])'"
    done = seen("tests", f"{script}; go env GOOS; {version}")
    assert (done.stdout, done.stderr) == ("linux\n(3, 11)\n", "")


def test_view_inside_a_view_hides_more_and_shares_network_namespaces():
    inner = f"{sys.executable} -m tests.support.machine.view lab -- sh -c"
    ours = packages.TESTS["faketime"]
    name = "view-of-test"
    done = seen(
        "tests",
        f"test -e {ours} && {inner} 'test ! -e {ours} && ip netns add {name}'"
        f" && ip netns exec {name} ip link show lo && ip netns del {name}",
    )
    assert done.returncode == 0, done.stderr


def test_what_is_mounted_below_is_seen_and_masked_as_the_rest():
    script = f"""
    mount -t tmpfs tmpfs /usr/local && mkdir /usr/local/other && mount -t tmpfs tmpfs /usr/share
    mkdir /usr/share/mine
    exec {sys.executable} -m tests.support.machine.view lab -- sh -c \
        'test ! -e /usr/local/other && test -d /usr/share/mine && ip -V'
    """
    go = "$(dirname $(dirname $(readlink -f $(command -v go))))"
    keep = f"mkdir /mnt/go && mount --bind {go} /mnt/go && export PATH=/mnt/go/bin:$PATH"
    # The gate runs this in a view, whose mounts a view inside it would remove.
    kept = {name: text for name, text in os.environ.items() if name != "MACHINE_VIEW"}
    environ = {**kept, "PYTHONPATH": ".:lab"}
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", f"mount -t tmpfs tmpfs /mnt; {keep}; {script}"],
        cwd=ROOT, env=environ,
        text=True, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

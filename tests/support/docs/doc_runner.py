# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Follows a page of the documentation literally: writes each file, runs each command, in order.

The reader has a copy of the checkout and its own home folder. All differences between the lab and
the pages are here: `NAMES`, `SUBNETS`, `SHIMS` and `GIVEN`; `NOT_RUN` lists commands that are not
run.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import yaml

from labkit.images.programs import programs
from labkit.inventory import inventory
from labkit.lab import Lab
from tests.support import ROOT
from tests.support.docs.pages import (
    Run,
    Write,
    commands,
    is_shown,
    read,
    steps,
)
from tests.support.lab.commands import run as run_command

# Commands that cannot run in a test, with the reason.
NOT_RUN = {
    "make demo": "starts the lab that this test uses",
    "make test": "runs this test",
    "make bench": "starts the lab that this test uses",
    "make netbox": "builds a NetBox, which takes a gigabyte; its tests are marked real_netbox",
    "make simulate": "fails while anything is left to find; its own tests run it",
    "make lab-down": "ends the lab that this test uses",
}

# Names of nodes in the pages, and in the lab.
NAMES = {"worker-1": "n1", "worker-2": "n2", "worker-3": "n3"}
# Hosts in the pages' inventories, renamed by `NAMES`, and the corresponding hosts of the lab.
HOSTS = {
    **{name: name for name in NAMES.values()},
    **{f"{name}.example.com": name for name in NAMES.values()},
    "gateway": "client",
}
# The subnets of the pages' pools; each host gets an address in them, counted from the number.
SUBNETS = {"192.168.1.{}/24": 10, "fd00:1::{:x}/64": 16}

IMAGE = "registry.example.com/purelb:0.1.0"
# Programs that this machine does not have. Arguments that no page uses are refused.
SHIMS = {
    # The addresses of the pages are in a subnet of the lab, of which the client is a host.
    "curl": """
exec {lab} exec client -- /usr/bin/curl "$@"
""",
    # kubectl is part of the lab's Kubernetes binary; it reads KUBECONFIG as usual.
    "kubectl": """
exec {kubernetes} kubectl "$@"
""",
    # There is no registry: an image is built from the page's Dockerfile on the lab's base images,
    # and a push loads it into the nodes.
    "podman": """
archive() {{ echo "{archives}/${{1//[\\/:]/-}}.tar"; }}
case "$1" in
build)
    [ "$2 $4 $6" = "--file --tag ." ] || exit 64
    exec {lab} image build --file "$3" --tag "$5" --context . --output "$(archive "$5")" \
        --build-arg BASE_IMAGE=localhost/lab/python:1 \
        --build-arg BUILD_IMAGE=localhost/lab/python-build:1 ;;
save)
    [ "$2" = --output ] || exit 64
    exec cp "$(archive "$4")" "$3" ;;
push)
    exec {lab} load "$(archive "$2")" ;;
*)
    exit 64 ;;
esac
""",
}

# Files that a page expects the reader to have.
GIVEN = {"docs/ipam.md": {"token": "0123456789\n", "ca.crt": "the certificate of an authority\n"}}


class Reader:
    """A reader with a home folder, a copy of the checkout and a kubeconfig of the lab."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        """Create the home folder, the copy of the checkout and the substitute programs."""
        self.home, self.checkout = folder / "home", folder / "checkout"
        self._bin = folder / "bin"
        for made in (self.home / ".kube", self._bin, folder / "archives"):
            made.mkdir(parents=True)
        shutil.copy(lab.kubeconfig, self.home / ".kube" / "config")
        copy_checkout(self.checkout)
        places = {
            "kubernetes": programs(lab.at).kubernetes,
            # With the builds of this user, whose home the reader does not have.
            "lab": f"env XDG_CACHE_HOME={lab.at.builds.parent} {ROOT / 'lab/lab'}",
            "archives": folder / "archives",
        }
        for name, text in SHIMS.items():
            (self._bin / name).write_text("#!/usr/bin/env bash" + text.format(**places))
            (self._bin / name).chmod(0o755)
        _reach_hosts(lab, self.checkout / "host_vars")

    def follow(self, page: str) -> None:
        """Do all steps of a page; a failure names the page and the line."""
        for name, text in GIVEN.get(page, {}).items():
            (self.checkout / name).write_text(text)
        for step in steps(read(page)):
            if isinstance(step, Write):
                (self.checkout / step.name).write_text(_renamed(step.text))
            elif not is_left_out(step):
                self._do(page, step)

    def _do(self, page: str, step: Run) -> None:
        done = self.run(_renamed(step.script), check=False)
        where = f"{page}:{step.line}:\n{step.script}\n{done.stdout}"
        assert done.returncode == 0, f"exit code {done.returncode} of {where}"
        missing = [line for line in step.output if not is_shown(_renamed(line), done.stdout)]
        assert not missing, f"{missing} is missing in the output of {where}"

    def run(self, script: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a script in bash; it stops at the first command that fails."""
        done = run_command(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.checkout, env=self._environ(), stderr=subprocess.STDOUT, timeout=420,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{script}:\n{done.stdout}"
        return done

    def _environ(self) -> dict[str, str]:
        """Return this process's environment without settings of Ansible and kubectl."""
        own = ("ANSIBLE_", "K8S_AUTH_", "KUBECONFIG", "PYTHONPATH")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(own)}
        path = f"{self._bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**kept, "HOME": str(self.home), "PATH": path, "ANSIBLE_NOCOLOR": "1"}


def is_left_out(step: Run) -> bool:
    """Whether a block is not run; a block is run as a whole or not at all."""
    left = [command in NOT_RUN for command in commands(step.script)]
    assert all(left) or not any(left), f"some commands can be run, and some cannot: {step.script}"
    return all(left)


def _renamed(text: str) -> str:
    for name, ours in NAMES.items():
        text = text.replace(name, ours)
    return text


def copy_checkout(target: Path) -> None:
    """Copy all files of the checkout, committed or not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, text=True, capture_output=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def _reach_hosts(lab: Lab, folder: Path) -> None:
    """Write host_vars that connect the hosts of a page's inventory to those of the lab."""
    groups = json.loads(inventory(lab.at, lab.topology)).values()
    variables = {host: of for group in groups for host, of in group["hosts"].items()}
    folder.mkdir()
    for name, host in HOSTS.items():
        (folder / f"{name}.yml").write_text(yaml.safe_dump(variables[host]))

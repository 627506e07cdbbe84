# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A reader who follows a page to the letter: each file is written, each command run, in order.

The reader has a copy of the checkout and a home of its own. Where this machine and the lab are not
what the pages speak of, that is made up for here and nowhere else: by `NAMES`, `SUBNETS`, `SHIMS`
and `GIVEN`. What is not run at all is in `NOT_RUN`.
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

# Commands that cannot run inside a test, each with the one that runs it instead.
NOT_RUN = {
    "make demo": "brings up the very lab that this test is on; a run of its own",
    "make test": "runs this test",
    "make bench": "brings up the very lab that this test is on; a run of its own",
    "make netbox": "builds a NetBox, which takes a gigabyte; its tests are marked real_netbox",
    "make lab-down": "would end the very lab that this test is on; every run of the tests does it",
}

# The lab's nodes have names of their own.
NAMES = {"worker-1": "n1", "worker-2": "n2", "worker-3": "n3"}
# Hosts of the pages' inventories, as `NAMES` leaves them, and the host of the lab that each one is.
HOSTS = {
    **{name: name for name in NAMES.values()},
    **{f"{name}.example.com": name for name in NAMES.values()},
    "gateway": "client",
}
# The pages' pools are in these; each host gets an address in them, counted from the number.
SUBNETS = {"192.168.1.{}/24": 10, "fd00:1::{:x}/64": 16}

IMAGE = "registry.example.com/purelb:0.1.0"
# Programs that are not on this machine. Arguments that no page uses are refused.
SHIMS = {
    # The lab has one program for all of Kubernetes. It reads KUBECONFIG as ever.
    "kubectl": """
exec {kubernetes} kubectl "$@"
""",
    # There is no registry. An image is built from the Dockerfile that the page names, on the lab's
    # base images, and pushed to where the nodes look for what they have pulled.
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

# Files that a page tells the reader to have.
GIVEN = {"docs/ipam.md": {"token": "0123456789\n", "ca.crt": "the certificate of an authority\n"}}


class Reader:
    """Somebody at a machine of their own, with a kubeconfig of the lab."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        """Make the home and the copy of the checkout."""
        self.home, self.checkout = folder / "home", folder / "checkout"
        self._bin = folder / "bin"
        for made in (self.home / ".kube", self._bin, folder / "archives"):
            made.mkdir(parents=True)
        shutil.copy(lab.kubeconfig, self.home / ".kube" / "config")
        _copy_checkout(self.checkout)
        places = {
            "kubernetes": programs(lab.at).kubernetes,
            "lab": ROOT / "lab" / "lab",
            "archives": folder / "archives",
        }
        for name, text in SHIMS.items():
            (self._bin / name).write_text("#!/usr/bin/env bash" + text.format(**places))
            (self._bin / name).chmod(0o755)
        _reach_hosts(lab, self.checkout / "host_vars")

    def follow(self, page: str) -> None:
        """Do all that a page says; whatever fails names the page and the line."""
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
        assert not missing, f"{missing} is not in what was printed by {where}"

    def run(self, script: str, *, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run a script as bash does for somebody who stops at the first command that fails."""
        done = run_command(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.checkout, env=self._environ(), stderr=subprocess.STDOUT, timeout=300,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"{script}:\n{done.stdout}"
        return done

    def _environ(self) -> dict[str, str]:
        """This process's environment without what tells Ansible and kubectl where things are."""
        own = ("ANSIBLE_", "K8S_AUTH_", "KUBECONFIG", "PYTHONPATH")
        kept = {name: text for name, text in os.environ.items() if not name.startswith(own)}
        path = f"{self._bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**kept, "HOME": str(self.home), "PATH": path, "ANSIBLE_NOCOLOR": "1"}


def is_left_out(step: Run) -> bool:
    """Whether nothing of a block is run; a block is run as a whole or not at all."""
    left = [command in NOT_RUN for command in commands(step.script)]
    assert all(left) or not any(left), f"some commands can be run, and some cannot: {step.script}"
    return all(left)


def _renamed(text: str) -> str:
    for name, ours in NAMES.items():
        text = text.replace(name, ours)
    return text


def _copy_checkout(target: Path) -> None:
    """All files that belong to the checkout, whether they are committed or not."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, text=True, capture_output=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def _reach_hosts(lab: Lab, folder: Path) -> None:
    """Say beside a page's inventory how its hosts are reached: as those of the lab's own."""
    groups = json.loads(inventory(lab.at, lab.topology)).values()
    variables = {host: of for group in groups for host, of in group["hosts"].items()}
    folder.mkdir()
    for name, host in HOSTS.items():
        (folder / f"{name}.yml").write_text(yaml.safe_dump(variables[host]))

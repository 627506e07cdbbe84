# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Runs playbooks with tasks of one module, and collects the result of each task."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.support import ROOT


class Play:
    """The results of a playbook's tasks, and its output."""

    def __init__(self, results, output):
        self.results = results
        self.output = output
        self.changed = [result.get("changed", False) for result in results]
        self.messages = [result.get("msg", "") for result in results]


@pytest.fixture
def play(cluster, tmp_path):
    """Runs tasks of a module; the connection is set once by module defaults."""

    def run(module, *tasks):
        names = [f"result_{number}" for number in range(len(tasks))]
        steps = [
            {
                "name": f"Task {name}",
                f"purelb.purelb.{module}": options,
                "register": name,
                "ignore_errors": True,
                "check_mode": options.pop("check", False),
                "diff": True,
            }
            for name, options in zip(names, map(dict, tasks), strict=True)
        ]
        path = tmp_path / "results.json"
        content = "{{ [" + ", ".join(names) + "] | to_json }}"
        keep = {"content": content, "dest": str(path), "mode": "0600"}
        book = {
            "hosts": "localhost",
            "gather_facts": False,
            "vars": {"ansible_python_interpreter": sys.executable},
            "module_defaults": {
                "group/purelb.purelb.purelb": {"kubeconfig": str(cluster.kubeconfig)}
            },
            "tasks": [*steps, {"name": "Keep the results", "ansible.builtin.copy": keep}],
        }
        (tmp_path / "play.yml").write_text(yaml.safe_dump([book], sort_keys=False))
        output = ansible_playbook(tmp_path / "play.yml")
        return Play(json.loads(path.read_text()), output)

    return run


def ansible_playbook(path):
    """Run a playbook without KUBECONFIG; return its output in one line."""
    environ = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), str(path)],
        cwd=ROOT, env={**environ, "ANSIBLE_NOCOLOR": "1"},
        text=True, capture_output=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())

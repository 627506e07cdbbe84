# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

import os
from pathlib import Path

import pytest

from labkit.cli import logs
from labkit.cluster import state
from labkit.cluster.state import Daemon
from labkit.errors import Problem
from labkit.host.places import Places
from labkit.host.processes import Process
from labkit.topology import plan


@pytest.fixture
def at(tmp_path: Path):
    """The folders of a lab that is starting."""
    (tmp_path / "run/daemons").mkdir(parents=True)
    return Places(cache=tmp_path)


def daemon(start: int) -> Daemon:
    process = Process(os.getpid(), start)
    return Daemon(name="etcd", host="control", argv=["etcd"], in_mounts=False, process=process)


def test_saved_daemon_record_loads_unchanged(at: Places):
    state.save_daemon(at, daemon(7))
    assert state.load_daemons(at) == {"control.etcd": daemon(7)}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "etcd"}', '{"process": 1}'])
def test_unreadable_daemon_record_is_skipped(at: Places, text: str):
    (at.run / "daemons/control.etcd.json").write_text(text)
    assert state.load_daemons(at) == {}


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"number": 0}'])
def test_unreadable_topology_loads_as_none(at: Places, text: str):
    (at.run / "lab.json").write_text(text)
    assert state.load_topology(at) is None


def test_lab_is_ready_only_while_its_recorded_processes_run(at: Places):
    own = Process.of(os.getpid())
    assert own is not None
    state.save_topology(at, plan(nodes=1))
    state.save_daemon(at, daemon(own.start))
    assert not state.is_ready(at)
    state.mark_ready(at)
    assert state.is_ready(at)
    state.save_daemon(at, daemon(own.start + 1))  # the same pid, another process
    assert not state.is_ready(at)


def test_second_command_is_refused_with_the_name_of_the_first(at: Places):
    message = rf"'lab up' \(pid {os.getpid()}\) is running"
    with (
        state.locked(at.lock, "up"),
        pytest.raises(Problem, match=message),
        state.locked(at.lock, "down"),
    ):
        pass


def test_pod_logs_are_named_by_node_pod_and_container(at: Places):
    pod = at.run / "n1/pods/default_web-1_0a-1b/web"
    pod.mkdir(parents=True)
    (pod / "0.log").touch()
    (at.run / "logs").mkdir()
    (at.run / "logs/n1.kubelet.log").touch()
    assert set(logs.find(at)) == {"n1.kubelet", "n1/default/web-1/web/0"}

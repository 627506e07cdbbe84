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
    """The folders of a lab that is being brought up."""
    (tmp_path / "run/daemons").mkdir(parents=True)
    return Places(cache=tmp_path)


def daemon(start: int) -> Daemon:
    process = Process(os.getpid(), start)
    return Daemon(name="etcd", host="control", argv=["etcd"], in_mounts=False, process=process)


def test_a_record_comes_back_as_it_was(at: Places):
    state.save_daemon(at, daemon(7))
    assert state.load_daemons(at) == {"control.etcd": daemon(7)}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"name": "etcd"}', '{"process": 1}'])
def test_a_record_that_cannot_be_read_is_passed_over(at: Places, text: str):
    (at.run / "daemons/control.etcd.json").write_text(text)
    assert state.load_daemons(at) == {}


@pytest.mark.parametrize("text", ["", "{", "null", "[]", '{"number": 0}'])
def test_a_topology_that_cannot_be_read_is_none(at: Places, text: str):
    (at.run / "lab.json").write_text(text)
    assert state.load_topology(at) is None


def test_a_lab_is_ready_only_when_its_very_processes_run(at: Places):
    own = Process.of(os.getpid())
    assert own is not None
    state.save_topology(at, plan(nodes=1))
    state.save_daemon(at, daemon(own.start))
    assert not state.is_ready(at)
    state.mark_ready(at)
    assert state.is_ready(at)
    state.save_daemon(at, daemon(own.start + 1))  # the pid of another life
    assert not state.is_ready(at)


def test_a_second_command_is_told_who_is_at_work(at: Places):
    message = rf"'lab up' \(pid {os.getpid()}\) is at work"
    with (
        state.locked(at.lock, "up"),
        pytest.raises(Problem, match=message),
        state.locked(at.lock, "down"),
    ):
        pass


def test_logs_of_pods_are_found_by_node_pod_and_container(at: Places):
    pod = at.run / "n1/pods/default_web-1_0a-1b/web"
    pod.mkdir(parents=True)
    (pod / "0.log").touch()
    (at.run / "logs").mkdir()
    (at.run / "logs/n1.kubelet.log").touch()
    assert set(logs.find(at)) == {"n1.kubelet", "n1/default/web-1/web/0"}

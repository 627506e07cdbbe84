# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest

from labkit.cluster import down, preflight, state
from labkit.cluster.remnants import remnants, remove_dead
from labkit.errors import Problem
from labkit.host.places import Places, lock_of
from labkit.host.processes import MARK, wait_until
from labkit.net.namespaces import inside, ip_batch, path_of
from labkit.topology import plan

NUMBER = 15  # unlikely to be in use: people start at 0
LAB = plan(number=NUMBER, nodes=1)
SPACES = (LAB.switch, LAB.node("n1").netns)
LINK = LAB.host_link


@pytest.fixture
def at(tmp_path: Path):
    """The folders of the lab that is about to start."""
    return Places(cache=tmp_path / "mine", number=NUMBER)


@contextmanager
def names_in_use():
    """Namespaces and a link in the machine's own namespace, removed afterwards."""
    try:
        ip_batch([f"netns add {name}" for name in SPACES])
        ip_batch([f"link add {LINK} type veth peer name uplink netns {SPACES[0]}"])
        yield
    finally:
        ip_batch([f"link del {LINK}", *(f"netns del {name}" for name in SPACES)], force=True)


@pytest.fixture
def other(tmp_path: Path):
    """The run folder of another checkout's lab, which has namespaces and a link here."""
    run = tmp_path / "other/run15"
    run.mkdir(parents=True)
    with names_in_use():
        for name in SPACES:
            ip_batch([f"link set lo alias {run}"], namespace=name)
        ip_batch([f"link set {LINK} alias {run}"])
        yield run


def existing() -> set[str]:
    spaces = {name for name in SPACES if path_of(name).exists()}
    return spaces | ({LINK} if Path("/sys/class/net", LINK).exists() else set())


def test_remains_of_a_killed_lab_are_removed_and_printed(at: Places, other: Path, capsys):
    remove_dead(at)
    assert existing() == set()
    output = capsys.readouterr().out
    assert output.startswith(f"removed what a killed lab left ({other}): ")
    assert all(name in output for name in (*SPACES, f"link {LINK}"))
    assert other.exists()  # the other checkout's files stay


def test_lab_with_a_process_in_one_namespace_is_kept(at: Places, other: Path):
    command = inside(SPACES[1], ["sleep", "60"])
    with subprocess.Popen(command) as process:
        check_kept_while_running(at, other, process)


def test_lab_with_a_process_that_has_its_mark_is_kept(at: Places, other: Path):
    with subprocess.Popen(["sleep", "60"], env={MARK: str(other), "PATH": "/bin"}) as process:
        check_kept_while_running(at, other, process)


def check_kept_while_running(at: Places, other: Path, process: subprocess.Popen) -> None:
    try:
        # The process counts as soon as it has entered the namespace.
        assert wait_until(lambda: not remnants(at)[0].is_dead, seconds=5)
        remove_dead(at)
        assert existing() == {*SPACES, LINK}
        with pytest.raises(Problem, match=f"lab of {other} is up .*'lab down' there, or set LAB_"):
            preflight.check_names(at, LAB)
    finally:
        process.kill()
    process.wait()
    remove_dead(at)
    assert existing() == set()


def test_lab_with_a_running_command_is_kept(at: Places, other: Path):
    with state.locked(lock_of(other), "up"):
        remove_dead(at)
        assert existing() == {*SPACES, LINK}


def test_namespace_without_a_mark_is_kept_and_refused(at: Places):
    with names_in_use():
        remove_dead(at)
        assert existing() == {*SPACES, LINK}
        with pytest.raises(Problem, match=f"{SPACES[0]} exists and .* no lab: .*ip netns del"):
            preflight.check_names(at, LAB)


def test_recorded_names_with_another_labs_mark_are_not_taken_down(at: Places, other: Path):
    at.run.mkdir(parents=True)
    state.save_topology(at, LAB)
    assert down.own_namespaces(at) == []


def test_unmarked_namespaces_belong_to_the_lab_that_recorded_them(at: Places):
    at.run.mkdir(parents=True)
    state.save_topology(at, LAB)
    with names_in_use():
        assert set(down.own_namespaces(at)) == set(SPACES)

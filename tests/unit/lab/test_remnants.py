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

NUMBER = 15  # people begin at 0
LAB = plan(number=NUMBER, nodes=1)
SPACES = (LAB.switch, LAB.node("n1").netns)
LINK = LAB.host_link


@pytest.fixture
def at(tmp_path: Path):
    """The folders of the lab that is to go up."""
    return Places(cache=tmp_path / "mine", number=NUMBER)


@contextmanager
def made():
    """Namespaces and a link in the machine's own namespace; gone again whatever becomes of them."""
    try:
        ip_batch([f"netns add {name}" for name in SPACES])
        ip_batch([f"link add {LINK} type veth peer name uplink netns {SPACES[0]}"])
        yield
    finally:
        ip_batch([f"link del {LINK}", *(f"netns del {name}" for name in SPACES)], force=True)


@pytest.fixture
def other(tmp_path: Path):
    """What a lab of another checkout has in the machine's namespace; its run folder."""
    run = tmp_path / "other/run15"
    run.mkdir(parents=True)
    with made():
        for name in SPACES:
            ip_batch([f"link set lo alias {run}"], namespace=name)
        ip_batch([f"link set {LINK} alias {run}"])
        yield run


def exist() -> set[str]:
    spaces = {name for name in SPACES if path_of(name).exists()}
    return spaces | ({LINK} if Path("/sys/class/net", LINK).exists() else set())


def test_what_a_killed_lab_left_is_removed_and_named(at: Places, other: Path, capsys):
    remove_dead(at)
    assert exist() == set()
    said = capsys.readouterr().out
    assert said.startswith(f"removed what a killed lab left ({other}): ")
    assert all(name in said for name in (*SPACES, f"link {LINK}"))
    assert other.exists()  # the files are the other checkout's


def test_a_living_process_in_one_namespace_protects_all_of_its_lab(at: Places, other: Path):
    command = inside(SPACES[1], ["sleep", "60"])
    with subprocess.Popen(command) as process:
        refused_as_long_as(at, other, process)


def test_a_living_process_with_the_mark_protects_its_lab(at: Places, other: Path):
    with subprocess.Popen(["sleep", "60"], env={MARK: str(other), "PATH": "/bin"}) as process:
        refused_as_long_as(at, other, process)


def refused_as_long_as(at: Places, other: Path, process: subprocess.Popen) -> None:
    try:
        # A process counts from the moment at which it is where it is going.
        assert wait_until(lambda: not remnants(at)[0].is_dead, seconds=5)
        remove_dead(at)
        assert exist() == {*SPACES, LINK}
        with pytest.raises(Problem, match=f"lab of {other} is up .*'lab down' there, or set LAB_"):
            preflight.check_names(at, LAB)
    finally:
        process.kill()
    process.wait()
    remove_dead(at)
    assert exist() == set()


def test_a_command_at_work_protects_its_lab(at: Places, other: Path):
    with state.locked(lock_of(other), "up"):
        remove_dead(at)
        assert exist() == {*SPACES, LINK}


def test_a_namespace_without_a_mark_is_nobodys_left_over(at: Places):
    with made():
        remove_dead(at)
        assert exist() == {*SPACES, LINK}
        with pytest.raises(Problem, match=f"{SPACES[0]} exists and is no lab's: .*ip netns del"):
            preflight.check_names(at, LAB)


def test_a_lab_that_lost_its_names_does_not_take_down_who_has_them_now(at: Places, other: Path):
    at.run.mkdir(parents=True)
    state.save_topology(at, LAB)
    assert down.own_namespaces(at) == []


def test_unmarked_namespaces_are_the_labs_that_recorded_them(at: Places):
    at.run.mkdir(parents=True)
    state.save_topology(at, LAB)
    with made():
        assert set(down.own_namespaces(at)) == set(SPACES)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import pytest

from labkit.cluster import cables, faults, lifecycle, state
from labkit.errors import Problem, StepFailed
from labkit.host.places import Places
from labkit.topology import plan

LAB = plan(nodes=3)


@pytest.fixture
def at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    """The places of a lab whose network is not there, with its topology."""
    monkeypatch.setattr(cables.network, "change", lambda _before, _after: None)
    at = Places(cache=tmp_path)
    at.run.mkdir(parents=True)
    state.save_topology(at, LAB)
    return at


def test_connection_is_recorded_until_it_is_undone(at):
    topology, cable = cables.connect(at, "n2", "lan2")
    assert (cable.name, cable.v4, cable.v6) == ("eth1", "172.28.2.12", "fd28:0:0:2::12")
    assert state.load_topology(at) == topology != LAB
    assert cables.disconnect(at, "n2", "lan2") == state.load_topology(at) == LAB


def test_connection_that_fails_is_undone(at, monkeypatch):
    seen = []

    def change(before, after):
        seen.append((state.load_topology(at) == LAB.connected("n2", "lan2"), after == LAB))
        if after != LAB:
            raise StepFailed("ip", "no such device")

    monkeypatch.setattr(cables.network, "change", change)
    with pytest.raises(StepFailed):
        cables.connect(at, "n2", "lan2")
    # Recorded from before the first change until after the last one.
    assert seen == [(True, False), (True, True)]
    assert state.load_topology(at) == LAB


def test_up_with_the_same_topology_removes_what_was_connected(at, monkeypatch, capsys):
    monkeypatch.setattr(lifecycle.state, "is_ready", lambda _at: True)
    cables.connect(at, "n2", "lan2")
    lifecycle.up(at, nodes=3, placements=())
    assert state.load_topology(at) == LAB
    assert "removed the interfaces" in capsys.readouterr().out
    with pytest.raises(Problem, match="another topology"):
        lifecycle.up(at, nodes=2, placements=())


def test_one_cable_is_cut_by_the_name_of_its_interface(monkeypatch):
    batches = []
    monkeypatch.setattr(faults, "ip_batch", lambda lines, **_where: batches.append(lines))
    lab = LAB.connected("n2", "lan2")
    faults.set_ports(lab, "n2", up=False, interface="eth1")
    faults.set_ports(lab, "n2", up=False)
    one = "link set n2-eth1 down"
    assert batches == [[one], ["link set n2-eth0 down", one]]
    with pytest.raises(Problem, match="eth0, eth1"):
        faults.set_ports(lab, "n2", up=False, interface="eth2")

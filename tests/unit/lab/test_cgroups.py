# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import pytest

from labkit.host import cgroups

GROUPS = ("lab", "lab/n1", "lab/daemons", "lab/clients")


@pytest.fixture(params=[("cpu.shares", 1024), ("cpu.weight", 100)], ids=["v1", "v2"])
def share(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A group hierarchy like the kernel's: its root, the name of the share file, its default."""
    name, usual = request.param
    top = tmp_path if name == "cpu.weight" else tmp_path / "cpu"
    for group in GROUPS:
        (top / group).mkdir(parents=True)
        (top / group / name).write_text(str(usual))
    (top / "cgroup.procs").touch()
    (tmp_path / "cgroup.controllers").touch() if top == tmp_path else (tmp_path / "net").mkdir()
    monkeypatch.setattr(cgroups, "_ROOT", tmp_path)
    return top, name, usual


def test_nodes_and_clients_get_larger_shares_than_daemons(share: tuple[Path, str, int]):
    top, name, usual = share
    cgroups.make("lab", ["n1"])
    weights = [int((top / group / name).read_text()) // usual for group in GROUPS]
    assert weights == [16, 4, 1, 4]


def test_process_joins_its_group(share: tuple[Path, str, int]):
    top, _name, _usual = share
    cgroups.make("lab", ["n1"])
    cgroups.join("lab", cgroups.CLIENTS, 7)
    assert (top / "lab/clients/cgroup.procs").read_text() == "7"

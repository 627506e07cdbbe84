# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import pytest

from labkit import preflight
from labkit.errors import Problem, StepFailed
from labkit.places import Places, places


def test_only_root_may_go_on():
    preflight.check_root(0)
    with pytest.raises(Problem, match="run it as root"):
        preflight.check_root(1000)


def test_a_missing_tun_device_comes_with_the_command_that_makes_it(tmp_path: Path):
    with pytest.raises(Problem, match=r"mknod .* c 10 200"):
        preflight.check_tun(tmp_path / "tun")


def test_a_full_disk_is_refused_with_what_is_needed(tmp_path: Path):
    with pytest.raises(Problem, match=r"1\.0 GiB are free .* needs 2 GiB"):
        preflight.check_disk(tmp_path / "not/yet", gib=2, free=1 << 30)


@pytest.mark.parametrize("address", ["172.28.255.9/24", "fd28:0:0:ff::9/64"])
def test_a_subnet_of_somebody_else_is_refused(address: str):
    with pytest.raises(Problem, match=f"eth9 has {address}"):
        preflight.check_subnets([("eth9", address)])


@pytest.mark.parametrize("address", ["172.28.1.1/24", "10.0.0.1/8", "fd00::2/24"])
def test_a_subnet_beside_the_labs_is_none_of_its_business(address: str):
    preflight.check_subnets([("eth9", address)])


@pytest.mark.parametrize("run", ["/run/lab", "/var/lib/x/run", "/var/log/lab", "/srv/a b/run"])
def test_a_run_folder_that_nodes_could_not_use_is_refused(run: str):
    with pytest.raises(Problem, match="folder"):
        preflight.check_folder(Places(cache=Path("/srv"), run=Path(run), prefix="lab-"))


@pytest.mark.parametrize("prefix", ["", "-lab", "Lab-", "a-long-prefix", "1lab"])
def test_a_prefix_that_cannot_start_a_link_name_is_refused(
    monkeypatch: pytest.MonkeyPatch, prefix: str
):
    monkeypatch.setenv("LAB_PREFIX", prefix)
    with pytest.raises(Problem, match="LAB_PREFIX"):
        places()


def test_the_folders_come_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PURELB_LAB_CACHE", "/srv/cache")
    monkeypatch.setenv("LAB_PREFIX", "two-")
    at = places()
    assert (at.run, at.lock) == (Path("/srv/cache/run"), Path("/srv/cache/run.lock"))
    assert at.prefix == "two-"


def test_a_failed_step_shows_the_end_of_its_log(tmp_path: Path):
    log = tmp_path / "etcd.log"
    log.write_text("\n".join(f"line {i}" for i in range(100)))
    text = str(StepFailed("etcd", "it ended", log=log))
    assert text.startswith(f"etcd failed: it ended\nlog: {log}\n")
    assert text.endswith("line 99")
    assert "line 91" not in text

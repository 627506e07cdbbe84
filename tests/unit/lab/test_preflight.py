# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path

import pytest

from labkit.cluster import preflight
from labkit.errors import Problem, StepFailed
from labkit.host.places import Places, places
from labkit.topology import plan
from tests.support import ROOT


def test_user_other_than_root_is_refused():
    preflight.check_root(0)
    with pytest.raises(Problem, match="run it as root"):
        preflight.check_root(1000)


def test_full_disk_is_refused_with_the_space_needed(tmp_path: Path):
    with pytest.raises(Problem, match=r"1\.0 GiB are free .* needs 2 GiB"):
        preflight.check_disk(tmp_path / "not/yet", gib=2, free=1 << 30)


@pytest.mark.parametrize("address", ["172.28.255.9/24", "fd28:0:0:ff::9/64", "172.28.255.6/32"])
def test_address_that_overlaps_the_host_links_subnets_is_refused(address: str):
    with pytest.raises(Problem, match=f"eth9 has {address}"):
        preflight.check_subnets(plan(number=1, nodes=1), [("eth9", address)])


@pytest.mark.parametrize(
    "address",
    ["172.28.1.1/24", "10.0.0.1/8", "fd00::2/24", "172.28.255.1/30", "fd28:0:0:ff::9/126"],
)
def test_address_outside_the_host_links_subnets_is_accepted(address: str):
    preflight.check_subnets(plan(number=1, nodes=1), [("eth9", address)])


@pytest.mark.parametrize("cache", ["/run/lab", "/var/lib/x/lab", "/var/log/lab", "/srv/a b/lab"])
def test_folder_that_nodes_cannot_use_is_refused(cache: str):
    with pytest.raises(Problem, match="folder"):
        preflight.check_folder(Places(cache=Path(cache)))


@pytest.mark.parametrize("number", ["-1", "16", "one", "01", " 1"])
def test_invalid_lab_number_is_refused(monkeypatch: pytest.MonkeyPatch, number: str):
    monkeypatch.setenv("LAB_NUMBER", number)
    with pytest.raises(Problem, match=f"LAB_NUMBER '{number}' .* use 0 to 15"):
        places()


@pytest.mark.parametrize(
    ("number", "folder"), [(None, "run"), ("", "run"), ("0", "run"), ("1", "run1"), ("15", "run15")]
)
def test_run_folder_and_lock_follow_from_the_environment(
    monkeypatch: pytest.MonkeyPatch, number: str | None, folder: str
):
    monkeypatch.setenv("PURELB_LAB_CACHE", "/srv/cache")
    monkeypatch.delenv("LAB_NUMBER", raising=False)
    if number is not None:
        monkeypatch.setenv("LAB_NUMBER", number)
    at = places()
    assert (at.run, at.lock) == (Path("/srv/cache", folder), Path(f"/srv/cache/{folder}.lock"))


def test_builds_are_in_the_users_cache_unless_a_folder_for_everything_is_given(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delenv("LAB_NUMBER", raising=False)
    monkeypatch.delenv("PURELB_LAB_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/srv/of-user")
    assert places().builds == Path("/srv/of-user/purelb-lab")
    assert places().cache == ROOT / ".cache/lab"
    monkeypatch.setenv("PURELB_LAB_CACHE", "/srv/all")
    assert places().builds == places().cache == Path("/srv/all")


def test_other_labs_of_the_checkout_are_found_by_their_run_folders(tmp_path: Path):
    (tmp_path / "run1").mkdir()
    assert Places(cache=tmp_path).others == [tmp_path / "run1"]
    assert Places(cache=tmp_path, number=1).others == []


def test_failed_step_shows_the_end_of_its_log(tmp_path: Path):
    log = tmp_path / "etcd.log"
    log.write_text("\n".join(f"line {i}" for i in range(100)))
    text = str(StepFailed("etcd", "it ended", log=log))
    assert text.startswith(f"etcd failed: it ended\nlog: {log}\n")
    assert text.endswith("line 99")
    assert "line 91" not in text


def test_kernel_of_this_machine_has_what_the_lab_needs():
    preflight.check_kernel()


def test_kernel_without_a_feature_is_refused_with_its_name_and_reason(
    monkeypatch: pytest.MonkeyPatch,
):
    lacks = ("iproute2", "warp links", "ip link add lab-try0 type warp")
    monkeypatch.setattr(preflight, "_KERNEL", (lacks,))
    with pytest.raises(Problem, match=r"this kernel has no warp links \(.+\): boot one"):
        preflight.check_kernel()
    preflight.check_kernel(absent=["iproute2"])


def test_machine_without_control_groups_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(preflight.cgroups, "_ROOT", tmp_path / "none")
    with pytest.raises(Problem, match="no control groups at /sys/fs/cgroup"):
        preflight.check_kernel()

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

import os
import threading
import time
from contextlib import nullcontext
from pathlib import Path

import pytest

from labkit.cluster.setup import left
from labkit.errors import Problem, StepFailed
from labkit.host import progress
from labkit.images.buildah import pip_config
from labkit.images.builds import Build, content_hash, prune
from labkit.images.programs import version_of


@pytest.fixture
def source(tmp_path: Path):
    (tmp_path / "main.go").write_text("package main\n")
    (tmp_path / "notes.txt").write_text("not an input\n")
    return tmp_path


def test_hash_ignores_files_that_are_not_inputs(source: Path):
    before = content_hash([source], "flag")
    (source / "notes.txt").write_text("changed\n")
    assert content_hash([source], "flag") == before


@pytest.mark.parametrize("change", ["content", "name", "extra"])
def test_hash_changes_with_each_input(source: Path, change: str):
    before = content_hash([source], "flag")
    if change == "content":
        (source / "main.go").write_text("package other\n")
    elif change == "name":
        (source / "main.go").rename(source / "lab.go")
    assert content_hash([source], "other" if change == "extra" else "flag") != before


@pytest.mark.parametrize("failures", [0, 2, 3])
def test_build_is_tried_three_times_in_an_empty_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
):
    outcomes, pauses = [False] * failures + [True], []

    def make(scratch: Path, _log: Path) -> None:
        assert list(scratch.iterdir()) == []
        (scratch / "half").touch()
        if not outcomes.pop(0):
            raise StepFailed("go build", "go ended with 1")

    monkeypatch.setattr(progress.time, "sleep", pauses.append)
    build = Build("thing", 1, tmp_path / "thing-1", make)
    with nullcontext() if failures < 3 else pytest.raises(StepFailed):
        build.ensure(logs=tmp_path)
    assert build.is_done is (failures < 3)
    assert pauses == [5.0, 20.0][:failures]


def test_failed_build_is_not_done(tmp_path: Path):
    def fail(scratch: Path, _log: Path) -> None:
        (scratch / "half").touch()
        raise RuntimeError

    build = Build("thing", 1, tmp_path / "thing-1", fail)
    with pytest.raises(RuntimeError):
        build.ensure(logs=tmp_path)
    assert not build.is_done


def test_finished_build_does_not_run_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    made = []
    build = Build("thing", 1, tmp_path / "thing-1", lambda scratch, _log: made.append(scratch))
    assert [build.ensure(logs=tmp_path) for _time in range(2)] == [True, False]
    assert len(made) == 1
    assert capsys.readouterr().out.count("thing") == 2


def test_what_is_left_to_build_is_said_with_its_seconds(tmp_path: Path):
    builds = [
        Build(f"thing {n}", n, tmp_path / f"thing-{n}", lambda _s, _log: None) for n in (1, 2)
    ]
    assert left(builds) == "to be built: thing 1 (about 1 s), thing 2 (about 2 s)"
    builds[0].ensure(logs=tmp_path)
    assert left(builds) == "to be built: thing 2 (about 2 s)"
    builds[1].ensure(logs=tmp_path)
    assert left(builds) == "to be built: nothing"


def test_long_step_says_how_long_it_has_taken_and_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(progress, "_INTERVAL", 0.01)
    progress.run_step("step", ["sleep", "0.1"], log=tmp_path / "log", expected=330)
    assert "  step: 0 s of about 330 s\n" in capsys.readouterr().out
    progress.run_step("step", ["sleep", "0.1"], log=tmp_path / "log")
    assert "  step: 0 s\n" in capsys.readouterr().out


def test_two_checkouts_build_the_same_only_once(tmp_path: Path):
    made = []

    def make(scratch: Path, _log: Path) -> None:
        made.append(scratch)
        time.sleep(0.2)

    build = Build("thing", 1, tmp_path / "thing-1", make)
    others = [threading.Thread(target=build.ensure, kwargs={"logs": tmp_path}) for _n in range(2)]
    for other in others:
        other.start()
    for other in others:
        other.join()
    assert build.is_done
    assert len(made) == 1


def test_only_builds_that_no_one_asked_for_in_a_month_are_removed(tmp_path: Path):
    builds = [Build("thing", 1, tmp_path / f"thing-{n}", lambda _s, _log: None) for n in range(3)]
    for build in builds:
        build.ensure(logs=tmp_path)
    month_ago = time.time() - 31 * 24 * 3600
    for build in builds[:2]:
        os.utime(build.folder, (month_ago, month_ago))
    builds[0].ensure(logs=tmp_path)
    prune(tmp_path)
    assert [build.is_done for build in builds] == [True, False, True]


def test_version_is_read_from_go_mod():
    pins = "require k8s.io/kubernetes v1.2.3\n\nrequire (\n\tk8s.io/api v0.2.3 // indirect\n)\n"
    assert version_of("k8s.io/kubernetes", pins) == "1.2.3"
    assert version_of("k8s.io/api", pins) == "0.2.3"
    with pytest.raises(Problem, match="restore it"):
        version_of("k8s.io/nothing", pins)


def test_pip_settings_of_the_machine_are_in_the_builds_configuration():
    text = pip_config({"PIP_DEFAULT_TIMEOUT": "180", "PIP_INDEX_URL": ""})
    assert "default-timeout = 180" in text
    assert "index-url" not in text

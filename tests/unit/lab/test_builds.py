# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from contextlib import nullcontext
from pathlib import Path

import pytest

from labkit.errors import Problem, StepFailed
from labkit.host.places import Places
from labkit.images import programs
from labkit.images.buildah import pip_config
from labkit.images.builds import Build, content_hash
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
def test_go_build_is_tried_three_times(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failures: int
):
    outcomes, pauses = [False] * failures + [True], []

    def run_step(name: str, _command: list[str], **_more: object) -> None:
        if not outcomes.pop(0):
            raise StepFailed(name, "go ended with 1")

    monkeypatch.setattr(programs, "run_step", run_step)
    monkeypatch.setattr(programs.time, "sleep", pauses.append)
    pause = programs.builds(Places(cache=tmp_path))[-1]
    with nullcontext() if failures < 3 else pytest.raises(StepFailed):
        pause.make(tmp_path, tmp_path / "log")
    assert len(pauses) == min(failures, 2)


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
    build.ensure(logs=tmp_path)
    build.ensure(logs=tmp_path)
    assert len(made) == 1
    assert capsys.readouterr().out.count("thing") == 2


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

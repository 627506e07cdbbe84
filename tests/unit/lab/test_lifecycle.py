# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from contextlib import nullcontext
from pathlib import Path

import pytest

from labkit.cluster import lifecycle
from labkit.errors import LabError, Problem, StepFailed
from labkit.host.places import Places


@pytest.fixture
def bring_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Starts a lab whose attempts end with these errors; returns what happened."""
    monkeypatch.setenv(lifecycle.MARK, "")  # removed again after the test

    def act(*errors: LabError | None) -> list[str]:
        happened, ends = [], list(errors)

        def attempt(*_arguments: object, **_options: object) -> None:
            happened.append("up")
            if error := ends.pop(0):
                raise error

        monkeypatch.setattr(lifecycle, "bring_up", attempt)
        monkeypatch.setattr(lifecycle.down, "take_down", lambda _at: happened.append("down"))
        monkeypatch.setattr(lifecycle.remnants, "remove_dead", lambda _at: None)
        monkeypatch.setattr(lifecycle.preflight, "check_up", lambda _at, _wanted: None)
        with pytest.raises(LabError) if errors[-1] else nullcontext():
            lifecycle.up(Places(cache=tmp_path), nodes=1, placements=())
        return happened

    return act


def test_lab_whose_start_fails_is_taken_down_and_started_once_more(bring_up):
    assert bring_up(StepFailed("etcd", "it ended"), None) == ["down", "up", "down", "up"]


def test_lab_that_fails_twice_is_down(bring_up):
    failed = StepFailed("etcd", "it ended")
    assert bring_up(failed, failed) == ["down", "up", "down", "up", "down"]


def test_problem_of_the_user_is_reported_at_once(bring_up):
    assert bring_up(Problem("no Go")) == ["down", "up", "down"]

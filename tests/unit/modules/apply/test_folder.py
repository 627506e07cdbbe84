# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from purelb.apply import folder
from purelb.core.errors import ObjectError
from tests.support import ROOT


def manage(
    path: Path, files: dict[str, Any], *absent: str, check_mode: bool = False
) -> dict[str, Any]:
    params = {"path": str(path), "files": files, "absent": list(absent)}
    return folder.manage(
        params, check_mode=check_mode, move=lambda text, path: path.write_text(text) and None
    )


def actions(result: dict[str, Any]) -> dict[str, str]:
    return {entry["name"]: entry["action"] for entry in result["results"]}


def test_a_folder_and_its_files_are_created(tmp_path: Path):
    place = tmp_path / "a" / "b"
    result = manage(place, {"one.yaml": "1\n", "two.yaml": "2\n"}, "three.yaml")
    assert actions(result) == {"one.yaml": "created", "two.yaml": "created", "three.yaml": "absent"}
    assert {path.name: path.read_text() for path in place.iterdir()} == {
        "one.yaml": "1\n",
        "two.yaml": "2\n",
    }
    assert result["changed"]


def test_a_second_run_changes_nothing(tmp_path: Path):
    manage(tmp_path, {"one.yaml": "ä\n"}, "two.yaml")
    before = (tmp_path / "one.yaml").stat().st_mtime_ns
    result = manage(tmp_path, {"one.yaml": "ä\n"}, "two.yaml")
    assert (result["changed"], result["diff"]) == (False, [])
    assert (tmp_path / "one.yaml").stat().st_mtime_ns == before


def test_existing_files_are_changed_and_removed_with_a_diff(tmp_path: Path):
    for name in ("changed", "removed", "other"):
        (tmp_path / name).write_text(f"old {name}")
    result = manage(tmp_path, {"changed": "new"}, "removed")
    assert actions(result) == {"changed": "changed", "removed": "deleted"}
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "changed": "new",
        "other": "old other",
    }
    shown = [(d["before_header"], d["before"], d["after"]) for d in result["diff"]]
    assert shown == [
        (str(tmp_path / "changed"), "old changed", "new"),
        (str(tmp_path / "removed"), "old removed", ""),
    ]


def test_check_mode_returns_the_same_and_writes_nothing(tmp_path: Path):
    (tmp_path / "removed").write_text("old")
    result = manage(tmp_path, {"made": "new"}, "removed", check_mode=True)
    assert actions(result) == {"made": "created", "removed": "deleted"}
    assert [path.name for path in tmp_path.iterdir()] == ["removed"]
    assert manage(tmp_path / "none", {"made": "new"}, check_mode=True)["changed"]
    assert not (tmp_path / "none").exists()


def test_an_object_is_written_as_json(tmp_path: Path):
    dashboard = ROOT / "roles/purelb_install/files/monitoring/dashboard.json"
    manage(tmp_path, {"dashboard.json": json.loads(dashboard.read_text())})
    assert (tmp_path / "dashboard.json").read_text() == dashboard.read_text()


def test_a_binary_file_is_replaced(tmp_path: Path):
    (tmp_path / "made").write_bytes(b"\xff\xfe")
    assert actions(manage(tmp_path, {"made": "new"})) == {"made": "changed"}


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "/etc/passwd", "../up", "a\0b"])
@pytest.mark.parametrize("option", ["files", "absent"])
def test_a_name_outside_the_folder_is_refused(tmp_path: Path, name: str, option: str):
    files, absent = ({name: ""}, ()) if option == "files" else ({}, (name,))
    with pytest.raises(ObjectError, match=f"{option}: .*without a path"):
        manage(tmp_path, files, *absent)


def test_a_name_in_files_and_absent_is_refused(tmp_path: Path):
    with pytest.raises(ObjectError, match="absent: 'one': is also in files"):
        manage(tmp_path, {"one": ""}, "one")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_names_the_file(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(folder.FolderError, match=r"file: File exists: give a folder"):
        manage(tmp_path / "file", {"made": ""})
    (tmp_path / "one").mkdir()
    with pytest.raises(folder.FolderError, match=r"one: Is a directory: give a folder"):
        manage(tmp_path, {"one": ""})

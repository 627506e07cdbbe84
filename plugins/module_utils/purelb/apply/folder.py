# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Writes and deletes text files of a folder. Pure except for the files."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional

from ..core.errors import ObjectError, PureLBError
from ..module.manifests import action

FOLDER_MODE = 0o755


class FolderError(PureLBError):
    """A folder or a file in it cannot be read or written."""


@dataclass(frozen=True)
class FolderResult:
    """Content of a file before and after; None if it does not exist."""

    name: str
    before: Optional[str]
    after: Optional[str]

    @property
    def action(self) -> str:
        """Returns created, changed, unchanged, deleted or absent."""
        return action(self.before, self.after)

    @property
    def is_change(self) -> bool:
        """Whether the file changes (or would, in check mode)."""
        return self.before != self.after

    def difference(self, folder: Path) -> Dict[str, str]:
        """Returns the change for `--diff`."""
        path = str(folder / self.name)
        texts = {"before": self.before or "", "after": self.after or ""}
        return {"before_header": path, "after_header": path, **texts}


def check(files: Mapping[str, str], absent: Iterable[str]) -> None:
    """Raise ObjectError for a name that is not a plain file name, or that is in both options."""
    for option, names in (("files", files), ("absent", absent)):
        for name in names:
            if name in ("", ".", "..") or "/" in name or "\0" in name:
                raise ObjectError(option, repr(name), "must be a file name, without a path")
    for name in absent:
        if name in files:
            raise ObjectError("absent", repr(name), "is also in files: remove it from one of them")


def outcomes(
    stored: Mapping[str, str], files: Mapping[str, str], absent: Iterable[str]
) -> List[FolderResult]:
    """Returns the result for each named file: those to write first, then those to delete."""
    wanted = {**files, **dict.fromkeys(absent)}
    return [FolderResult(name, stored.get(name), text) for name, text in wanted.items()]


def manage(
    params: Mapping[str, Any], *, check_mode: bool, move: Callable[[str, Path], None]
) -> Dict[str, Any]:
    """The work of the module purelb_manifests; `move` writes a text to a file atomically."""
    folder, absent = Path(params["path"]), params["absent"]
    files = {name: _text(content) for name, content in params["files"].items()}
    check(files, absent)
    try:
        is_missing = not folder.is_dir()
        found = outcomes(_read(folder, [*files, *absent]), files, absent)
        if not check_mode:
            if is_missing:
                folder.mkdir(mode=FOLDER_MODE, parents=True)
            for outcome in found:
                _write(folder / outcome.name, outcome, move)
    except OSError as error:
        raise FolderError(
            f"{error.filename or folder}: {error.strerror}: give a folder whose files this "
            f"user may read and write"
        ) from error
    return {
        "changed": is_missing or any(outcome.is_change for outcome in found),
        "results": [{"name": o.name, "action": o.action} for o in found],
        "diff": [o.difference(folder) for o in found if o.is_change],
    }


def _text(content: Any) -> str:
    # Before version 2.19 Ansible parses a text that looks like JSON.
    return content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"


def _read(folder: Path, names: Iterable[str]) -> Dict[str, str]:
    found = (path for path in (folder / name for name in names) if path.exists())
    # A binary file is replaced, too; the diff shows replacement characters.
    return {path.name: path.read_bytes().decode(errors="replace") for path in found}


def _write(path: Path, outcome: FolderResult, move: Callable[[str, Path], None]) -> None:
    if outcome.is_change and outcome.after is not None:
        move(outcome.after, path)
    elif outcome.action == "deleted":
        path.unlink()

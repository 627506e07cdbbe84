# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""How long each test took in the last run that had it, to balance the next one.

Kept in the user's cache, so that a new clone on the same machine begins with them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from pathlib import Path

# A test that was never measured counts as this part of its time limit.
_PART = 0.1
_USUAL_LIMIT = 60.0
# Seconds of tests of one file that are run by one worker.
_PART_OF_FILE = 15.0


def file() -> Path:
    """Return where the durations are kept between runs."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "purelb-lab/durations.json"


def read(path: Path | None) -> dict[str, float]:
    """Return the seconds of each test; empty if there are none, or they cannot be read."""
    try:
        found: dict[str, float] = json.loads(path.read_text()) if path else {}
    except (OSError, ValueError):
        return {}
    return found


def update(path: Path, measured: Mapping[str, float]) -> None:
    """Add the seconds of the tests of a run; another run sees the old file or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.{os.getpid()}")
    new.write_text(json.dumps({**read(path), **measured}, indent=0, sort_keys=True))
    new.rename(path)


def guess(limit: float | None) -> float:
    """Return the seconds of a test that was never measured, by its time limit in seconds."""
    return _PART * (limit or _USUAL_LIMIT)


def parts(tests: Iterable[str], seconds: Mapping[str, float], *, whole: str) -> dict[str, str]:
    """Return the part of its file that each test is in.

    A part has as many tests, in their order, as take 15 seconds, but for a file whose path begins
    with `whole`, which is one part.
    """
    found: dict[str, str] = {}
    numbers: dict[str, int] = {}
    lasting: dict[str, float] = {}
    for test in tests:
        file = test.partition("::")[0]
        if not file.startswith(whole) and lasting.get(file, 0.0) >= _PART_OF_FILE:
            numbers[file] = numbers.get(file, 0) + 1
            lasting[file] = 0.0
        lasting[file] = lasting.get(file, 0.0) + seconds.get(test, guess(None))
        found[test] = f"{file} {numbers.get(file, 0)}"
    return found

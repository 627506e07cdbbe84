# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Results as a table and as JSON.

A figure is the median of several values with their minimum and maximum; not the mean, which a
single interruption of the machine would distort.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / ".cache/bench"
_HEADER = ("case", "what", "unit", "median", "min", "max", "n", "baseline", "aim", "", "by run")


@dataclass(frozen=True)
class Figure:
    """The values of one measurement in one case.

    `baseline`: values of the same run to compare with. `aim`: upper limit of the median. `runs`:
    number of runs, with equally many values each, if the values of a run depend on each other.
    """

    case: str
    what: str
    unit: str
    values: tuple[float, ...]
    baseline: tuple[float, ...] = ()
    aim: float | None = None
    runs: int = 0

    @property
    def median(self) -> float:
        """The median of all values."""
        return median(self.values)

    @property
    def by_run(self) -> tuple[float, ...]:
        """The median of each run; empty if the values are independent."""
        size = len(self.values) // self.runs if self.runs else 0
        return tuple(median(self.values[i * size : (i + 1) * size]) for i in range(self.runs))

    @property
    def verdict(self) -> str:
        """Whether the median is below the aim; empty without an aim."""
        if self.aim is None:
            return ""
        return "met" if self.median < self.aim else "MISSED"

    def row(self) -> tuple[str, ...]:
        """Return the cells of a table row."""
        return (
            self.case,
            self.what,
            self.unit,
            *map(_shown, (self.median, min(self.values), max(self.values))),
            str(len(self.values)),
            _shown(median(self.baseline)) if self.baseline else "",
            "" if self.aim is None else f"< {self.aim:g}",
            self.verdict,
            " ".join(map(_shown, self.by_run)),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the figure as JSON data, with every value."""
        return {
            "case": self.case,
            "what": self.what,
            "unit": self.unit,
            "median": self.median,
            "min": min(self.values),
            "max": max(self.values),
            "values": self.values,
            "baseline": median(self.baseline) if self.baseline else None,
            "aim": self.aim,
            "by_run": self.by_run,
        }


def _shown(value: float) -> str:
    """Return the value with three significant digits and no exponent."""
    for border, digits in ((100.0, 0), (10.0, 1), (1.0, 2)):
        if abs(value) >= border:
            return f"{value:.{digits}f}"
    return f"{value:.3f}"


def table(figures: Iterable[Figure]) -> str:
    """Return a text table with aligned columns, numbers to the right."""
    rows = [_HEADER, *(figure.row() for figure in figures)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    texts = range(3)
    lines = [
        "  ".join(
            cell.ljust(width) if column in texts else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])


def publish(name: str, figures: Sequence[Figure]) -> Path:
    """Print the table, write the JSON file and return its path."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    path = RESULTS / f"{name}.json"
    result = {
        "name": name,
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "machine": {
            "cpus": os.cpu_count(),
            "kernel": platform.release(),
            "python": platform.python_version(),
        },
        "figures": [figure.to_json() for figure in figures],
    }
    path.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\n{table(figures)}\n\n{name}: {path.relative_to(ROOT)}\n", flush=True)
    return path


def _commit() -> str:
    describe = ["git", "describe", "--always", "--dirty"]
    done = subprocess.run(describe, cwd=ROOT, text=True, capture_output=True, check=False)
    return done.stdout.strip()


def progress(text: str) -> None:
    """Print what is being measured."""
    print(f"  {text}", flush=True)

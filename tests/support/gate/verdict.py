# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the records of a run and of its second tries mean.

A test that failed and passes a second try is flaky: it is listed, and the run is green. Everything
else that did not pass is a failure: a test that failed again, one that was collected and has no
outcome, a run that was killed or ended with an error of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

# More different failures than this are no chance: there are no second tries.
MOST_INCIDENTS = 10
# A test with the marker `safety` must pass this many times in a row in its second try: a fault that
# shows in one run of three would pass once with two chances of three.
SAFETY_PASSES = 3
# pytest's exit statuses: everything passed; some tests failed.
_JUDGED = (0, 1)
LOST = "did not run to its end"


@dataclass(frozen=True)
class Failure:
    """Why a test did not pass: the line that says it, and the whole text."""

    test: str
    message: str
    text: str
    worker: str = ""


@dataclass(frozen=True)
class Run:
    """What one run of pytest collected, and how each test ended."""

    collected: tuple[str, ...] = ()
    passed: frozenset[str] = frozenset()
    xfailed: frozenset[str] = frozenset()
    skipped: dict[str, str] = field(default_factory=dict)
    """The reason, by test."""
    failed: dict[str, Failure] = field(default_factory=dict)
    """The first failure, by test; also of tests that were collected and have no outcome."""
    seconds: dict[str, float] = field(default_factory=dict)
    """The time of set-up, call and teardown, by test that passed."""
    safety: frozenset[str] = frozenset()
    uncollected: dict[str, str] = field(default_factory=dict)
    """The error, by file."""
    notes: tuple[str, ...] = ()
    """What the summary is to show of it in addition to the counts."""
    crashes: int = 0
    status: int | None = None
    """The exit status of pytest's process; None if it was ended before its end."""


def parse(lines: Iterable[str]) -> Run:
    """Return the run that a record describes; the last line may be cut off."""
    events = [event for line in lines if (event := _event(line))]
    reports = [event for event in events if event["event"] == "report"]
    collected = tuple(t for e in events if e["event"] == "collected" for t in e["tests"])
    ended = {r["test"] for r in reports if r["when"] == "teardown"}
    failed: dict[str, Failure] = {}
    for report in reports:
        if report["outcome"] == "failed":
            keys = ("test", "message", "text", "worker")
            failure = Failure(*(report[key] or "" for key in keys))
            failed.setdefault(failure.test, failure)
    lost = (test for test in collected if test not in ended and test not in failed)
    failed.update({test: Failure(test, LOST, LOST) for test in lost})
    is_skip = {r["test"]: r for r in reports if r["outcome"] == "skipped"}
    xfailed = frozenset(test for test, report in is_skip.items() if report["is_xfail"])
    skipped = {test: r["text"] for test, r in is_skip.items() if test not in {*xfailed, *failed}}
    passed = frozenset(ended - failed.keys() - skipped.keys())
    seconds = dict.fromkeys(passed, 0.0)
    for report in reports:
        if report["test"] in passed:
            seconds[report["test"]] += report["seconds"]
    return Run(
        collected=collected,
        passed=passed,
        seconds={test: round(total, 2) for test, total in seconds.items()},
        xfailed=xfailed - failed.keys(),
        skipped=skipped,
        failed=failed,
        safety=frozenset(r["test"] for r in reports if r["is_safety"]),
        uncollected={e["test"]: e["text"] for e in events if e["event"] == "uncollected"},
        notes=tuple(e["text"] for e in events if e["event"] == "note"),
        crashes=sum(event["event"] == "crash" for event in events),
        status=next((e["status"] for e in events if e["event"] == "end"), None),
    )


def _event(line: str) -> dict[str, Any]:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        return {}
    return event


def incidents(run: Run) -> list[list[str]]:
    """Return the tests that failed, those of one file with the same message together."""
    found: dict[tuple[str, str], list[str]] = {}
    for test, failure in run.failed.items():
        key = (test.partition("::")[0], failure.message.partition("\n")[0])
        found.setdefault(key, []).append(test)
    return list(found.values())


def errors(run: Run) -> list[str]:
    """Return why a run is red in spite of its tests' second tries; empty if they decide."""
    found = [f"cannot be collected: {file}\n{text}" for file, text in run.uncollected.items()]
    if run.status is None:
        found.append("the run was ended before its end")
    elif run.status not in _JUDGED:
        found.append(f"pytest ended with {run.status}")
    elif run.status == 1 and not run.failed:
        found.append("pytest ended with 1, and no test failed")
    count = len(incidents(run))
    if count > MOST_INCIDENTS:
        found.append(f"{count} different failures are no chance: there were no second tries")
    return found


@dataclass(frozen=True)
class Verdict:
    """The outcome of a run together with its second tries."""

    passed: int
    xfailed: int
    skipped: dict[str, str]
    flaky: tuple[Failure, ...]
    """The first failure of each test that passed its second try."""
    failed: tuple[Failure, ...]
    errors: tuple[str, ...]
    crashes: int
    notes: tuple[str, ...] = ()

    @property
    def is_green(self) -> bool:
        """Whether every collected test has passed, at first or in its second try."""
        return not self.failed and not self.errors


def judge(first: Run, tries: Sequence[Run]) -> Verdict:
    """Return the verdict on a run, given the runs of its second tries in their order."""
    flaky, failed = [], []
    for test, failure in first.failed.items():
        (flaky if _has_recovered(test, tries) else failed).append(failure)
    return Verdict(
        passed=len(first.passed) + len(flaky),
        xfailed=len(first.xfailed),
        skipped=first.skipped,
        flaky=tuple(flaky),
        failed=tuple(failed),
        errors=tuple(errors(first)),
        crashes=first.crashes,
        notes=first.notes,
    )


def _has_recovered(test: str, tries: Sequence[Run]) -> bool:
    own = [run for run in tries if test in run.collected]
    needed = SAFETY_PASSES if any(test in run.safety for run in own) else 1
    return len(own) >= needed and all(test in run.passed for run in own)


_LINES = 40  # of a failure's text
_LOST = 20  # tests that are listed, as a run that was killed may have lost thousands


def summary(verdicts: Sequence[Verdict]) -> str:
    """Return the text that ends a run: what is skipped, flaky and failed, and the counts."""
    rows = [f"SKIPPED {test}: {why}" for v in verdicts for test, why in v.skipped.items()]
    for verdict in verdicts:
        for failure in verdict.flaky:
            rows += [f"FLAKY {failure.test}", *_tail(failure)]
        for failure in verdict.failed:
            if failure.message != LOST:
                rows += [f"FAILED {failure.test}", *_tail(failure)]
    lost = [f.test for v in verdicts for f in v.failed if f.message == LOST]
    rows += [f"LOST {test} {LOST}" for test in lost[:_LOST]]
    rows += [f"LOST {len(lost) - _LOST} more"] if len(lost) > _LOST else []
    rows += [f"ERROR {error}" for verdict in verdicts for error in verdict.errors]
    flaky, crashes, xfailed = (
        sum(counts)
        for counts in (
            (len(v.flaky) for v in verdicts),
            (v.crashes for v in verdicts),
            (v.xfailed for v in verdicts),
        )
    )
    rows += [note for verdict in verdicts for note in verdict.notes]
    rows += [f"{flaky} flaky (failed once, passed a second try)"] if flaky else []
    rows += [f"{crashes} workers crashed and were replaced"] if crashes else []
    rows += [f"{xfailed} of the passed are expected failures"] if xfailed else []
    passed = sum(v.passed for v in verdicts)
    failed = sum(len(v.failed) + len(v.errors) for v in verdicts)
    skipped = sum(len(v.skipped) for v in verdicts)
    return "\n".join([*rows, f"{passed} passed, {failed} failed, {skipped} skipped"])


def _tail(failure: Failure) -> list[str]:
    where = [f"  on {failure.worker}"] if failure.worker else []
    return where + [f"  | {line}" for line in failure.text.splitlines()[-_LINES:]]

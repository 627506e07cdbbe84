# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

import json

import pytest

from tests.support.gate.verdict import LOST, incidents, judge, parse, summary

A, B, C = "tests/a.py::test_a", "tests/a.py::test_b[1::2]", "tests/b.py::test_c"


def report(test, outcome="passed", when="call", *, message="", **more):
    return {
        "event": "report", "test": test, "when": when, "outcome": outcome, "seconds": 0.1,
        "worker": None, "is_safety": False, "is_xfail": False, "message": message,
        "text": f"text of {message}", **more,
    }  # fmt: skip


def ended(test, outcome="passed", **more):
    """The reports of a test whose call ended so."""
    teardown = report(test, when="teardown", is_safety=more.get("is_safety", False))
    return [report(test, when="setup"), report(test, outcome, **more), teardown]


def run(*events, tests=(A,), status=0):
    """The run with these reports, as it is read from its record."""
    lines = [{"event": "collected", "tests": list(tests)}]
    lines += [line for event in events for line in (event if isinstance(event, list) else [event])]
    lines += [] if status is None else [{"event": "end", "status": status}]
    return parse(json.dumps(line) for line in lines)


def failing(test=A, message="assert 1 == 2", **more):
    return run(ended(test, "failed", message=message, **more), tests=[test], status=1)


def passing(test=A, **more):
    return run(ended(test, **more), tests=[test])


def test_passed_run_is_green():
    found = judge(run(ended(A), ended(C), tests=[A, C]), [])
    assert found.is_green
    assert summary([found]) == "2 passed, 0 failed, 0 skipped"


def test_seconds_are_those_of_set_up_call_and_teardown_of_passed_tests():
    found = run(ended(A), ended(C, "failed"), tests=[A, C], status=1)
    assert found.seconds == {A: 0.3}


def test_failure_without_a_second_try_is_red():
    found = judge(failing(), [])
    assert not found.is_green
    assert summary([found]).splitlines() == [
        f"FAILED {A}",
        "  | text of assert 1 == 2",
        "0 passed, 1 failed, 0 skipped",
    ]


def test_failure_that_passes_a_second_try_is_flaky_and_shown_with_its_first_text():
    found = judge(failing(worker="gw1"), [passing()])
    assert found.is_green
    assert summary([found]).splitlines() == [
        f"FLAKY {A}",
        "  on gw1",
        "  | text of assert 1 == 2",
        "1 flaky (failed once, passed a second try)",
        "1 passed, 0 failed, 0 skipped",
    ]


@pytest.mark.parametrize(
    "tries",
    [
        [failing()],
        [run(tests=[A], status=None)],
        [passing(B)],
        [run(ended(A, "skipped"), tests=[A])],
        [passing(), failing()],
    ],
    ids=["failed", "killed", "another test", "skipped", "passed and failed"],
)
def test_second_try_that_does_not_pass_is_red(tries):
    assert [f.test for f in judge(failing(), tries).failed] == [A]


@pytest.mark.parametrize(("passes", "is_green"), [(1, False), (2, False), (3, True)])
def test_safety_must_pass_three_times_in_a_row(passes, is_green):
    tries = [passing(is_safety=True)] * passes
    assert judge(failing(is_safety=True), tries).is_green is is_green
    assert not judge(failing(is_safety=True), [*tries, failing(is_safety=True)]).is_green


@pytest.mark.parametrize("when", ["setup", "teardown"])
def test_failure_of_a_fixture_is_a_failure_of_the_test(when):
    others = [report(A, when=w) for w in ("setup", "call", "teardown") if w != when]
    found = run(*others, report(A, "failed", when, message="no lab"), status=1)
    assert found.failed[A].message == "no lab"
    assert found.passed == set()


def test_test_that_crashed_its_worker_has_failed_though_the_replacement_ran_it():
    crash = report(A, "failed", "???", message="worker 'gw0' crashed")
    found = run(crash, {"event": "crash", "worker": "gw0"}, ended(A), status=1)
    assert list(found.failed) == [A]
    verdict = judge(found, [passing()])
    assert verdict.is_green
    assert "1 workers crashed and were replaced" in summary([verdict])


@pytest.mark.parametrize(
    "reports", [[], [report(A, when="setup")], ended(A)[:2]], ids=["none", "set up", "no teardown"]
)
def test_collected_test_without_an_end_is_lost(reports):
    found = run(reports, ended(C), tests=[A, C])
    assert found.failed[A].message == LOST
    verdict = judge(found, [])
    assert not verdict.is_green
    assert summary([verdict]).startswith(f"LOST {A}")
    assert judge(found, [passing()]).is_green


@pytest.mark.parametrize("status", [None, 2, 3, 4, 5])
def test_run_that_was_killed_or_broke_off_is_red_though_its_tests_passed(status):
    assert not judge(run(ended(A), status=status), []).is_green


def test_exit_status_1_without_a_failed_test_is_red():
    assert not judge(run(ended(A), status=1), []).is_green


def test_file_that_cannot_be_collected_is_red():
    broken = {"event": "uncollected", "test": "tests/x.py", "text": "SyntaxError"}
    found = judge(run(ended(A), broken, status=1), [])
    assert not found.is_green
    assert "ERROR cannot be collected: tests/x.py\nSyntaxError" in summary([found])


def test_line_that_was_cut_off_is_ignored():
    lines = [json.dumps({"event": "collected", "tests": [A]}), '{"event": "repo']
    assert list(parse(lines).failed) == [A]


def test_record_that_is_missing_is_red():
    assert not judge(parse([]), []).is_green


def test_failures_of_one_file_with_one_message_are_one_incident():
    found = run(
        ended(A, "failed", message="no API\nfor a"),
        ended(B, "failed", message="no API\nfor b"),
        ended(C, "failed", message="no API"),
        tests=[A, B, C],
        status=1,
    )
    assert incidents(found) == [[A, B], [C]]


@pytest.mark.parametrize(("count", "is_green"), [(10, True), (11, False)])
def test_more_than_ten_different_failures_are_red(count, is_green):
    tests = [f"tests/a.py::test_{n}" for n in range(count)]
    reports = [r for n, t in enumerate(tests) for r in ended(t, "failed", message=f"no {n}")]
    first = run(reports, tests=tests, status=1)
    assert judge(first, [passing(test) for test in tests]).is_green is is_green


def test_skips_and_expected_failures_are_counted():
    skipped = ended(B, "skipped")
    expected = ended(C, "skipped", is_xfail=True)
    found = judge(run(ended(A), skipped, expected, tests=[A, B, C]), [])
    assert found.is_green
    assert summary([found]).splitlines() == [
        f"SKIPPED {B}: text of ",
        "1 of the passed are expected failures",
        "2 passed, 0 failed, 1 skipped",
    ]


def test_summary_counts_all_groups():
    text = summary([judge(passing(), []), judge(failing(C), []), judge(failing(B), [passing(B)])])
    assert text.endswith("2 passed, 1 failed, 0 skipped")


def test_killed_run_lists_some_of_the_lost_tests():
    tests = [f"tests/a.py::test_{n}" for n in range(1000)]
    text = summary([judge(run(tests=tests, status=None), [])])
    assert "LOST 980 more" in text
    assert text.endswith("0 passed, 1001 failed, 0 skipped")

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.errors import SettingError
from purelb.core.leadership.leader import (
    TRANSITIONS,
    Action,
    LeaderEvent,
    LeaderRecord,
    Leadership,
    LeaderState,
    LeaderTiming,
    Step,
    released,
)

TIMING = LeaderTiming()
WALL = 1_700_000_000.0
NOW = 1000.0
EMPTY = LeaderRecord(version="5")
THEIRS = LeaderRecord(
    "b", duration=15.0, acquire_time=WALL, renew_time=WALL, transitions=3, version="10"
)
OURS = replace(THEIRS, holder="a", transitions=4, version="20")
ME = Leadership("a", TIMING)
LEADING = ME.observed(THEIRS, 0.0).written(OURS, sent_at=NOW, now=NOW)
ACQUIRE, RENEW, END = Step(Action.ACQUIRE), Step(Action.RENEW), Step(Action.END)


def wait(until):
    return Step(Action.WAIT, until)


def renewed(record, version):
    return replace(record, renew_time=record.renew_time + 2, version=version)


@pytest.mark.parametrize(
    ("machine", "now", "step"),
    [
        pytest.param(ME, NOW, wait(float("inf")), id="before-the-first-look"),
        pytest.param(ME.observed(EMPTY, NOW), NOW, ACQUIRE, id="an-empty-holder-is-free-at-once"),
        pytest.param(ME.observed(THEIRS, NOW), NOW + 14.9, wait(NOW + 15), id="held-by-another"),
        pytest.param(ME.observed(THEIRS, NOW), NOW + 15, ACQUIRE, id="a-duration-after-the-sight"),
        pytest.param(
            ME.observed(replace(THEIRS, renew_time=0.0), NOW), NOW + 14, wait(NOW + 15),
            id="first-seen-long-expired-by-the-wall-clock",
        ),
        pytest.param(
            ME.observed(replace(THEIRS, duration=40.0), NOW), NOW + 15, wait(NOW + 40),
            id="the-holders-duration-counts",
        ),
        pytest.param(
            ME.observed(replace(THEIRS, duration=2_147_483_647.0), NOW), NOW + 15, wait(NOW + 60),
            id="but-not-for-ever",
        ),
        pytest.param(
            ME.observed(replace(THEIRS, duration=0.0), NOW), NOW, wait(NOW + 15),
            id="a-lock-without-a-duration-gets-the-own",
        ),
        pytest.param(
            ME.observed(THEIRS, NOW).observed(renewed(THEIRS, "11"), NOW + 2), NOW + 15,
            wait(NOW + 17), id="renewed",
        ),
        pytest.param(
            ME.observed(THEIRS, NOW).observed(replace(THEIRS, version="12"), NOW + 9), NOW + 9,
            wait(NOW + 15), id="a-label-renews-nothing",
        ),
        pytest.param(
            ME.observed(THEIRS, NOW).observed(replace(EMPTY, version="9"), NOW + 1), NOW + 1,
            wait(NOW + 15), id="what-is-older-says-nothing",
        ),
        pytest.param(
            ME.observed(THEIRS, NOW).observed(replace(EMPTY, version="9"), NOW + 1, asked_at=NOW),
            NOW + 1, wait(NOW + 15), id="what-was-asked-for-before-says-nothing-either",
        ),
        pytest.param(
            ME.observed(THEIRS, NOW).observed(
                replace(EMPTY, version="9"), NOW + 2, asked_at=NOW + 1
            ),
            NOW + 2, wait(NOW + 17), id="what-is-free-in-an-older-store-may-still-be-led-by",
        ),
        pytest.param(
            ME.observed(THEIRS, NOW).observed(
                replace(THEIRS, duration=40.0, version="9"), NOW + 2, asked_at=NOW + 1
            ),
            NOW + 2, wait(NOW + 42), id="held-in-an-older-store",
        ),
        pytest.param(
            ME.observed(THEIRS, NOW).observed(replace(OURS, version="11"), NOW + 1), NOW + 1,
            ACQUIRE, id="the-own-write-whose-answer-was-lost",
        ),
        pytest.param(ME.gone(NOW), NOW + 14.9, wait(NOW + 15), id="no-lock-may-have-had-a-holder"),
        pytest.param(
            ME.gone(NOW), NOW + 15, ACQUIRE, id="no-lock-for-a-duration"
        ),
        pytest.param(
            ME.gone(NOW).gone(NOW + 9), NOW + 15, wait(NOW + 24), id="there-may-have-been-one-since"
        ),
        pytest.param(
            ME.observed(THEIRS, NOW).gone(NOW + 1, "11"), NOW + 1, wait(NOW + 16),
            id="deleted-while-held",
        ),
        pytest.param(
            ME.observed(THEIRS, NOW).gone(NOW + 1, "9"), NOW + 1, wait(NOW + 15),
            id="an-older-deletion",
        ),
        pytest.param(
            ME.observed(EMPTY, NOW).gone(NOW + 1, "6"), NOW + 1, wait(NOW + 16),
            id="deleted-while-free",
        ),
        pytest.param(
            ME.observed(EMPTY, NOW).failed(sent_at=NOW, now=NOW + 0.5), NOW + 1, wait(NOW + 2),
            id="after-a-failure",
        ),
        pytest.param(LEADING, NOW + 1, wait(NOW + 2), id="leading"),
        pytest.param(LEADING, NOW + 2, RENEW, id="leading-and-renewal-due"),
        pytest.param(
            LEADING.failed(sent_at=NOW + 2, now=NOW + 4.5), NOW + 4, wait(NOW + 4.5),
            id="a-renewal-that-hung",
        ),
        pytest.param(
            LEADING.failed(sent_at=NOW + 9, now=NOW + 9), NOW + 9, wait(NOW + 10),
            id="the-deadline-comes-before-the-next-attempt",
        ),
        pytest.param(LEADING.at(NOW + 10), NOW + 10, END, id="the-deadline-has-passed"),
        pytest.param(LEADING.at(NOW + 999), NOW + 999, END, id="slept"),
        pytest.param(LEADING.gone(NOW + 1, "21"), NOW + 1, RENEW, id="leading-and-deleted"),
        pytest.param(
            LEADING.observed(replace(THEIRS, version="21"), NOW + 1), NOW + 1, END,
            id="leading-and-taken",
        ),
        pytest.param(
            LEADING.observed(replace(EMPTY, version="21"), NOW + 1), NOW + 1, END,
            id="leading-and-emptied",
        ),
        pytest.param(LEADING.observed(THEIRS, NOW + 1), NOW + 1, wait(NOW + 2), id="late-news"),
        pytest.param(LEADING.observed(OURS, NOW + 1), NOW + 1, wait(NOW + 2), id="own-news"),
        pytest.param(LEADING.stopped(), NOW, END, id="stopped"),
        pytest.param(ME.stopped(), NOW, END, id="stopped-before-it-led"),
    ],
)  # fmt: skip
def test_next_step_follows_from_observation_and_time(machine, now, step):
    assert machine.step(now) == step


def test_the_right_to_write_ends_at_the_deadline_counted_from_the_sending():
    answered_late = ME.observed(EMPTY, 0.0).written(OURS, sent_at=NOW, now=NOW + 1.9)
    assert answered_late.may_write(NOW + 9.9)
    assert not answered_late.may_write(NOW + 10)


@pytest.mark.parametrize(
    "machine",
    [ME, ME.observed(THEIRS, NOW), LEADING.stopped(), LEADING.at(NOW + 10)],
    ids=["new", "standby", "stopped", "lapsed"],
)
def test_standby_may_not_write(machine):
    assert not machine.may_write(NOW)


def test_late_response_gives_no_leadership():
    late = ME.observed(EMPTY, 0.0).written(OURS, sent_at=NOW, now=NOW + 10)
    assert late.state is LeaderState.LAPSED


@pytest.mark.parametrize("lost", [LEADING.at(NOW + 10), LEADING.stopped()], ids=["lapsed", "left"])
def test_response_after_the_end_changes_nothing(lost):
    assert lost.written(OURS, sent_at=NOW + 9, now=NOW + 11) == lost


def test_in_an_older_store_a_leader_cannot_renew_and_others_can():
    older = replace(THEIRS, version="5")
    assert LEADING.observed(older, NOW + 2, asked_at=NOW + 1).wanted(WALL).version == "20"
    standby = ME.observed(THEIRS, NOW).observed(older, NOW + 2, asked_at=NOW + 1)
    assert standby.wanted(WALL).version == "5"


def test_nothing_leads_back():
    ends = {LeaderState.LAPSED, LeaderState.SUPERSEDED, LeaderState.RELEASED}
    assert not ends & {state for state, _event in TRANSITIONS}
    assert {event for _state, event in TRANSITIONS} == set(LeaderEvent)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        pytest.param(ME.gone(0.0), LeaderRecord("a", 15.0, WALL, WALL), id="the-first-ever"),
        pytest.param(
            ME.observed(EMPTY, 0.0), LeaderRecord("a", 15.0, WALL, WALL, version="5"),
            id="a-lock-that-nobody-ever-held",
        ),
        pytest.param(
            ME.observed(THEIRS, 0.0), LeaderRecord("a", 15.0, WALL, WALL, 4, "10"), id="a-takeover"
        ),
        pytest.param(
            ME.observed(released(THEIRS, WALL), 0.0),
            LeaderRecord("a", 15.0, WALL, WALL, 4, "10"), id="a-lock-that-was-given-up",
        ),
        pytest.param(
            ME.observed(THEIRS, 0.0).gone(1.0, "11"), LeaderRecord("a", 15.0, WALL, WALL, 4),
            id="a-lock-that-was-deleted",
        ),
        pytest.param(
            LEADING, LeaderRecord("a", 15.0, OURS.acquire_time, WALL, 4, "20"), id="a-renewal"
        ),
        pytest.param(
            LEADING.gone(NOW, "21"), LeaderRecord("a", 15.0, OURS.acquire_time, WALL, 4),
            id="the-own-lock-that-was-deleted",
        ),
    ],
)  # fmt: skip
def test_written_lock_counts_transitions(machine, expected):
    assert machine.wanted(WALL) == expected


def test_a_lock_that_is_given_up_is_free_and_keeps_its_count():
    left = released(OURS, WALL + 9)
    assert (left.holder, left.transitions, left.version) == ("", 4, "20")
    assert ME.observed(left, NOW).step(NOW) == ACQUIRE


def test_the_holder_is_known_by_name():
    assert (ME.holder, ME.observed(THEIRS, NOW).holder) == ("", "b")


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"duration": 15.5}, "whole seconds"),
        ({"renew_deadline": 11.0}, "must come more than 4s before its end"),
        ({"retry_period": 10.0}, "must be shorter than its renew deadline"),
        ({"retry_period": 0.0}, "must be shorter than its renew deadline"),
    ],
    ids=["fractions", "deadline", "retry", "no-pause"],
)
def test_timings_with_which_two_could_write_are_refused(change, problem):
    with pytest.raises(SettingError, match=problem):
        replace(TIMING, **change)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from purelb.core.errors import SettingError
from purelb.core.settings import (
    LeaseTiming,
    TimingChoice,
    parse_duration,
    parse_port,
    parse_switch,
    required,
)

TEN = {"PURELB_LEASE_DURATION": "10s"}


class TestRequired:
    def test_a_setting_that_is_there_is_used(self):
        assert required({"X": "y"}, "X", "set it") == "y"

    @pytest.mark.parametrize("mapping", [{}, {"X": ""}])
    def test_a_setting_that_is_missing_is_named_with_the_mend(self, mapping):
        with pytest.raises(SettingError, match="X is not set; set it"):
            required(mapping, "X", "set it")


class TestSwitch:
    @pytest.mark.parametrize(("text", "is_on"), [("on", True), ("off", False), (" on ", True)])
    @pytest.mark.parametrize("default", [True, False])
    def test_it_is_as_it_is_set(self, text, is_on, default):
        assert parse_switch({"X": text}, "X", default=default) is is_on

    @pytest.mark.parametrize("mapping", [{}, {"X": ""}])
    @pytest.mark.parametrize("default", [True, False])
    def test_it_has_its_default_where_it_is_not_set(self, mapping, default):
        assert parse_switch(mapping, "X", default=default) is default

    @pytest.mark.parametrize("text", ["true", "1", "ON", "no"])
    def test_another_word_is_refused_by_name(self, text):
        with pytest.raises(SettingError, match="not a switch; write on or off"):
            parse_switch({"X": text}, "X", default=True)


class TestTiming:
    @pytest.mark.parametrize(
        ("text", "seconds"), [("10s", 10.0), ("500ms", 0.5), ("7", 7.0), ("1.5s", 1.5), ("1m", 60)]
    )
    def test_durations_are_read(self, text, seconds):
        assert parse_duration(text, "X") == seconds

    @pytest.mark.parametrize("text", ["", "ten", "-1s", "5h", "1s 2s", "inf"])
    def test_other_durations_are_refused_by_name(self, text):
        with pytest.raises(SettingError, match="X="):
            parse_duration(text, "X")

    @pytest.mark.parametrize("mapping", [{}, {"PURELB_LEASE_DURATION": " auto "}])
    def test_nodes_choose_by_default(self, mapping):
        assert TimingChoice.parse(mapping) == TimingChoice()

    @pytest.mark.parametrize(
        ("duration", "period"),
        [(60, 30), (10, 5), (5, 2.5), (4, 2), (3, 1), (2, 0.5)],
    )
    def test_a_lease_is_renewed_at_half_of_it_or_two_seconds_before(self, duration, period):
        assert LeaseTiming(duration, 1.9, 0.5).renew_period == period

    @pytest.mark.parametrize(
        ("nodes", "seconds"), [(1, 3), (30, 3), (31, 4), (50, 5), (99, 10), (100, 10), (1000, 10)]
    )
    def test_a_lease_is_the_longer_the_more_nodes_renew_theirs(self, nodes, seconds):
        timing = TimingChoice().timing(nodes=nodes, is_exact=True)
        assert timing == LeaseTiming(seconds, 0.9 * seconds, seconds / 5)

    @pytest.mark.parametrize(
        ("took", "seconds"), [(0.75, 3), (0.76, 4), (1.0, 4), (2.4, 10), (9.0, 10)]
    )
    def test_and_the_longer_writes_take(self, took, seconds):
        assert TimingChoice().timing(nodes=1, is_exact=True, took=took).duration == seconds

    def test_up_to_a_hundred_nodes_all_together_write_thirty_leases_a_second_at_most(self):
        for nodes in range(1, 101):
            timing = TimingChoice().timing(nodes=nodes, is_exact=True)
            assert nodes / timing.renew_period <= 30

    @pytest.mark.parametrize(
        "choice", [TimingChoice(), TimingChoice(3.0), TimingChoice(2.0, 1.9, 0.3)]
    )
    def test_where_lifetimes_end_the_right_it_takes_five_seconds(self, choice):
        timing = choice.timing(nodes=3, is_exact=False)
        assert timing == LeaseTiming(5.0, 3.5, 1.0)

    def test_what_is_said_is_so(self):
        choice = TimingChoice.parse(TEN)
        assert choice.timing(nodes=3, is_exact=True, took=5.0) == LeaseTiming(10.0, 9.0, 2.0)
        assert choice.timing(nodes=3, is_exact=False) == LeaseTiming(10.0, 7.0, 2.0)
        more = {"PURELB_RENEW_DEADLINE": "8s", "PURELB_RETRY_PERIOD": "500ms"}
        assert TimingChoice.parse({**TEN, **more}).longest == LeaseTiming(10.0, 8.0, 0.5)

    def test_the_longest_is_what_an_agent_before_may_have_had(self):
        assert TimingChoice().longest.duration == 10.0
        assert TimingChoice(60.0).longest.duration == 60.0

    @pytest.mark.parametrize(
        ("settings", "rule"),
        [
            (
                {**TEN, "PURELB_RENEW_DEADLINE": "10s"},
                "RENEW_DEADLINE must be shorter than .*DURATION",
            ),
            (
                {**TEN, "PURELB_RETRY_PERIOD": "7s"},
                "RETRY_PERIOD must be shorter than .*DEADLINE",
            ),
            ({**TEN, "PURELB_RETRY_PERIOD": "0s"}, "RETRY_PERIOD"),
            ({"PURELB_LEASE_DURATION": "10500ms"}, "whole seconds"),
            ({"PURELB_LEASE_DURATION": "1s"}, "2 to 60"),
            ({"PURELB_LEASE_DURATION": "61s"}, "2 to 60"),
            ({"PURELB_RENEW_DEADLINE": "7s"}, "must be auto where PURELB_LEASE_DURATION is"),
            ({"PURELB_RETRY_PERIOD": "1s"}, "must be auto where PURELB_LEASE_DURATION is"),
        ],
    )
    def test_a_broken_rule_is_named(self, settings, rule):
        with pytest.raises(SettingError, match=rule):
            TimingChoice.parse(settings)


@pytest.mark.parametrize(
    ("mapping", "port"),
    [({}, 10256), ({"X": " "}, 10256), ({"X": "0"}, 0), ({"X": " 65535 "}, 65535)],
)
def test_port(mapping, port):
    assert parse_port(mapping, "X", default=10256) == port


@pytest.mark.parametrize("text", ["65536", "-1", "1.5", "http", "\u0661"])
def test_text_that_is_no_port_is_an_error(text):
    with pytest.raises(SettingError, match=r"X=.* is not a port; write a number up to 65535"):
        parse_port({"X": text}, "X", default=0)

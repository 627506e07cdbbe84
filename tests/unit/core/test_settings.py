# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from purelb.core.errors import SettingError
from purelb.core.settings import LeaseTiming, parse_duration, parse_port, parse_switch, required


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

    def test_defaults_are_those_of_the_contract(self):
        assert LeaseTiming.parse({}) == LeaseTiming(10.0, 7.0, 2.0)

    def test_a_lease_is_renewed_twice_in_its_duration(self):
        assert LeaseTiming(duration=8, renew_deadline=6, retry_period=1).renew_period == 4.0

    @pytest.mark.parametrize(
        ("settings", "rule"),
        [
            ({"PURELB_RENEW_DEADLINE": "10s"}, "RENEW_DEADLINE must be shorter than .*DURATION"),
            ({"PURELB_RETRY_PERIOD": "7s"}, "RETRY_PERIOD must be shorter than .*DEADLINE"),
            ({"PURELB_RETRY_PERIOD": "0s"}, "RETRY_PERIOD"),
            ({"PURELB_LEASE_DURATION": "10500ms"}, "whole seconds"),
            ({"PURELB_LEASE_DURATION": "1s"}, "5 or more"),
        ],
    )
    def test_a_broken_rule_is_named(self, settings, rule):
        with pytest.raises(SettingError, match=rule):
            LeaseTiming.parse(settings)


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

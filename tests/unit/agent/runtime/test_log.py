# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import logging

import pytest

from purelb_agent.runtime import log

LOGGER = logging.getLogger("purelb")


@pytest.fixture(autouse=True)
def _restored():
    """Put back the handlers and levels that `configure` replaces."""
    root = logging.getLogger()
    before = root.handlers[:], root.level, LOGGER.level
    yield
    root.handlers[:], level, own_level = before
    root.setLevel(level)
    LOGGER.setLevel(own_level)


@pytest.fixture
def lines(capsys):
    """The lines that a call logs."""

    def lines():
        return capsys.readouterr().err.splitlines()

    return lines


class TestLogfmt:
    def test_a_line_has_time_level_event_and_fields(self, lines):
        log.configure(level="info", style="logfmt")
        log.info("leaseRenewed", node="n1", count=3)
        (line,) = lines()
        stamp, rest = line.split(" ", 1)
        assert stamp.startswith("ts=2")
        assert stamp.endswith("Z")
        assert rest == "level=info msg=leaseRenewed node=n1 count=3"

    @pytest.mark.parametrize(
        ("value", "written"),
        [
            ("plain", "plain"),
            ("two words", '"two words"'),
            ("a=b", '"a=b"'),
            ('say "x"', r'"say \"x\""'),
            ("two\nlines", r'"two\nlines"'),
            ("", '""'),
            ("é", "é"),
            (None, "None"),
        ],
        ids=["plain", "space", "equals", "quotes", "newline", "empty", "unicode", "none"],
    )
    def test_a_value_that_could_be_misread_is_quoted(self, lines, value, written):
        log.configure(level="info", style="logfmt")
        log.warning("event", field=value)
        assert lines()[0].endswith(f"msg=event field={written}")


class TestJson:
    def test_a_line_is_an_object(self, lines):
        log.configure(level="debug", style="json")
        log.debug("event", node="n1", count=3, kinds=["a"])
        (line,) = lines()
        found = json.loads(line)
        assert found.pop("ts").endswith("Z")
        expected = {"level": "debug", "msg": "event", "node": "n1", "count": 3, "kinds": ["a"]}
        assert found == expected

    def test_a_value_without_a_json_form_is_its_text(self, lines):
        log.configure(level="info", style="json")
        log.error("event", error=OSError("broken"))
        assert json.loads(lines()[0])["error"] == "broken"


@pytest.mark.parametrize("style", log.FORMATS)
def test_a_crash_has_its_trace_on_the_same_line(lines, style):
    log.configure(level="info", style=style)
    with pytest.raises(ZeroDivisionError) as raised:
        1 / 0  # noqa: B018 - for its trace
    log.crash("taskFailed", raised.value, task="renewer")
    (line,) = lines()
    assert "ZeroDivisionError: division by zero" in line
    assert "test_log.py" in line
    assert "renewer" in line


@pytest.mark.parametrize("number", range(4), ids=log.LEVELS)
def test_lower_levels_are_not_logged(lines, number):
    log.configure(level=log.LEVELS[number], style="logfmt")
    for write in (log.debug, log.info, log.warning, log.error):
        write("event")
    levels = [line.split()[1] for line in lines()]
    assert levels == [f"level={level}" for level in log.LEVELS[number:]]


def test_libraries_log_from_warnings_on(lines):
    log.configure(level="debug", style="logfmt")
    logging.getLogger("aiohttp").info("chatter")
    logging.getLogger("aiohttp").warning("trouble")
    (line,) = lines()
    assert line.endswith("msg=trouble")


def test_debug_is_switched_on_and_off(lines):
    log.configure(level="warning", style="logfmt")
    for _turn in range(2):
        log.switch_debug("warning")
        log.debug("detail")
    found = [line.split(" ")[1:] for line in lines()]
    assert found == [
        ["level=debug", "msg=logLevel"],
        ["level=debug", "msg=detail"],
        ["level=warning", "msg=logLevel"],
    ]

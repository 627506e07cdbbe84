# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal

import pytest

from purelb.core.errors import SettingError
from purelb_agent import __version__
from purelb_agent.runtime import log, program
from purelb_agent.runtime.tasks import ReplacedError, TaskEndedError


@pytest.fixture
def parser():
    return program.arguments("lbnodeagent", "Announces addresses.", "  NODE_NAME  a node")


class TestArguments:
    def test_defaults(self, parser):
        options = parser.parse_args([])
        found = options.log_level, options.log_format, options.metrics_port
        assert found == ("info", "logfmt", 7472)

    def test_values(self, parser):
        argv = ["--log-level=debug", "--log-format=json", "--metrics-port=1"]
        options = parser.parse_args(argv)
        found = options.log_level, options.log_format, options.metrics_port
        assert found == ("debug", "json", 1)

    @pytest.mark.parametrize("argument", ["--log-level=all", "--log-format=xml", "--port=1"])
    def test_an_unknown_value_or_option_ends_the_program(self, parser, argument, capsys):
        with pytest.raises(SystemExit) as ended:
            parser.parse_args([argument])
        assert ended.value.code == 2
        assert "usage: lbnodeagent" in capsys.readouterr().err

    def test_the_version_has_the_name_of_the_program(self, parser, capsys):
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(["--version"])
        assert ended.value.code == 0
        assert capsys.readouterr().out == f"lbnodeagent {__version__}\n"

    def test_help_lists_the_environment(self, parser, capsys):
        with pytest.raises(SystemExit):
            parser.parse_args(["--help"])
        assert "Environment:\n  NODE_NAME  a node" in capsys.readouterr().out


class TestSignals:
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
    async def test_sigterm_and_sigint_set_the_event(self, number):
        stop = program.stop_signal()
        assert not stop.is_set()
        os.kill(os.getpid(), number)
        async with asyncio.timeout(1):
            await stop.wait()


class TestRun:
    @pytest.fixture
    def run(self, parser, monkeypatch):
        """Run a program with some work, and without effects on this process."""
        done = []
        monkeypatch.setattr(program, "disable_created_metrics", lambda: done.append("metrics"))
        monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
        monkeypatch.setattr(log, "configure", lambda **settings: done.append(settings))
        monkeypatch.setattr("sys.argv", ["/usr/bin/lbnodeagent"])

        def run(work):
            program.run(parser.parse_args([]), work)
            return done

        return run

    def test_work_gets_the_options_of_a_configured_process(self, run):
        seen = []

        async def work(options):
            seen.append(options.metrics_port)

        done = run(work)
        assert done == [{"level": "info", "style": "logfmt"}, "freeze", "metrics"]
        assert seen == [7472]

    def test_sigusr1_switches_the_log_to_debug(self, run, monkeypatch):
        switched = []
        monkeypatch.setattr(log, "switch_debug", switched.append)

        async def work(_options):
            os.kill(os.getpid(), signal.SIGUSR1)
            async with asyncio.timeout(1):
                while not switched:  # noqa: ASYNC110 - a signal sets no event of ours
                    await asyncio.sleep(0.001)

        run(work)
        assert switched == ["info"]

    def test_a_wrong_setting_ends_it_with_one_line(self, run):
        async def work(_options):
            raise SettingError("NODE_NAME is missing")

        with pytest.raises(SystemExit) as ended:
            run(work)
        assert ended.value.code == "lbnodeagent: NODE_NAME is missing"

    @pytest.mark.parametrize(
        ("error", "level", "fields"),
        [
            (TaskEndedError("task renewer ended"), "ERROR", {"error": "task renewer ended"}),
            (ReplacedError("another leads"), "WARNING", {"reason": "another leads"}),
        ],
        ids=["failed", "replaced"],
    )
    def test_an_ended_task_ends_the_program_with_status_1(self, run, caplog, error, level, fields):
        async def work(_options):
            raise error

        with caplog.at_level(logging.INFO, "purelb"), pytest.raises(SystemExit) as ended:
            run(work)
        assert ended.value.code == 1
        (record,) = caplog.records
        assert (record.levelname, record.getMessage()) == (level, "stopped")
        assert record.fields == fields

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The log lines of a test: event names and their fields."""

from __future__ import annotations

import logging
from typing import Any

import pytest


class Logged:
    """What the agent logged since the test began."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, logger="purelb")
        self._caplog = caplog

    def fields(self, event: str) -> list[dict[str, Any]]:
        """Return the fields of each line of this event, values as they are written."""
        return [
            {name: str(value) for name, value in record.fields.items()}
            for record in self._caplog.records
            if record.name == "purelb" and record.getMessage() == event
        ]

    @property
    def events(self) -> list[str]:
        """The names of all events, in order."""
        return [r.getMessage() for r in self._caplog.records if r.name == "purelb"]

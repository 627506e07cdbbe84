# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Stands in for `purelb_agent.kube.events.Events` and keeps what is recorded."""

from __future__ import annotations

from typing import Any, NamedTuple


class RecordedEvent(NamedTuple):
    """One event: its object, and what `kubectl describe` shows."""

    about: Any
    reason: str
    message: str
    kind: str


class RecordedEvents:
    """The events in the order in which they were recorded."""

    def __init__(self) -> None:
        self.records: list[RecordedEvent] = []

    def record(self, about: Any, reason: str, message: str, *, kind: str = "Normal") -> None:
        """As `Events.record`."""
        self.records.append(RecordedEvent(about, reason, message, kind))

    @property
    def reasons(self) -> list[str]:
        """The reason of each event."""
        return [event.reason for event in self.records]

    def take(self) -> list[tuple[str, str]]:
        """Reason and message of each event since the last call."""
        taken, self.records = self.records, []
        return [(event.reason, event.message) for event in taken]

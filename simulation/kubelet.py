# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The kubelet: starts the container of a Pod again when it has ended, after a back-off.

The Pod and its UID stay. The first restart comes at once; after that the kubelet lets 10, 20, 40
and up to 300 seconds pass after each end, and begins again when a container has run for long.
"""

from __future__ import annotations

from functools import partial

from simulation.time.process import Process
from simulation.time.timeline import MICROSECONDS, Action, Appointment, Timeline

# Seconds in which it notices that a container has ended, and starts another one.
_NOTICED = 1.0
_FIRST, _LONGEST = 10.0, 300.0
_FORGOTTEN = 2 * _LONGEST


class Kubelet:
    """Looks after the Pods of one program, one after the other; starts nothing unless `is_on`.

    `ended`: the containers that ended while it was on, or were killed.
    """

    def __init__(self, timeline: Timeline, start: Action) -> None:
        self.is_on = False
        self.ended: list[Process] = []
        self._timeline = timeline
        self._start = start
        self._back_off = 0.0
        self._restarted_at = 0
        self._due: Appointment | None = None
        self._has_pod = False
        self._containers = 0

    def begin_pod(self) -> None:
        """Take over a new Pod, whose first container runs."""
        self.end_pod()
        self._has_pod = True
        self._containers = 0
        self._back_off = 0.0

    def end_pod(self) -> None:
        """Start nothing any more: the Pod is to end, or the node has no power."""
        self._has_pod = False
        self._cancel()

    def again(self) -> tuple[str, ...]:
        """Return the name of the next container among those of the Pod; empty for the first one."""
        return (str(self._containers),) if self._containers else ()

    def container_began(self, container: Process) -> None:
        """Look after a container that has just been started."""
        self._cancel()
        self._containers += 1
        container.on_end(partial(self.container_ended, container))

    def container_ended(self, container: Process) -> None:
        """Have another container started in time, if the Pod is to continue."""
        if not (self.is_on and self._has_pod):
            return
        self.ended.append(container)
        if self._timeline.now - self._restarted_at > _FORGOTTEN * MICROSECONDS:
            self._back_off = 0.0
        self._due = self._timeline.after(_NOTICED + self._back_off, self._restart)
        self._back_off = min(2 * self._back_off, _LONGEST) or _FIRST

    def _cancel(self) -> None:
        if self._due is not None:
            self._due.cancel()

    def _restart(self) -> None:
        self._restarted_at = self._timeline.now
        self._start()

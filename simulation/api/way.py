# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The way of one program to the API server, and what can be wrong with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from functools import partial

from simulation.time.timeline import Action, Timeline

# Returns how many seconds the next message takes.
Delay = Callable[[], float]
# Of a request's method and kind: seconds before it takes effect, and from then to its answer.
Slowness = Callable[[str, str], tuple[float, float]]
# Of a request's method and kind: the status that it is refused with, 0 for none.
Refusals = Callable[[str, str], int]


class Reach(Enum):
    """The fate of what is sent."""

    WHOLE = "whole"
    # Connections break at once, and new ones are refused.
    REFUSED = "refused"
    # Nothing arrives in either direction. TCP repeats it, until it gives the connection up.
    DROPPED = "dropped"
    # The server is stopped and its kernel acknowledges: nothing comes, nothing breaks.
    STOPPED = "stopped"


class Connection:
    """A request and its answer, or a watch.

    `broken` is called with the cause if it breaks, `forgotten` once if it is a watch that ends.
    `watches`: the kind of a watch. A silent one brings nothing any more.
    """

    def __init__(self, unanswered: float, broken: Callable[[OSError], None]) -> None:
        self.unanswered = unanswered
        self.broken = broken
        self.forgotten: Action = lambda: None
        self.is_closed = self.is_silent = False
        self.watches = ""


class Way:
    """Carries messages; `slow` says how slow writes are. `asked` counts connections.

    `refuses` says what the server refuses at its door, without effect; open watches continue.

    Delays: `request` and `answer` of a request's two ways, `event` of a line of a watch, `lag` of
    all lines of a watch: by how much the server is behind on which it was opened.
    """

    def __init__(self, timeline: Timeline, *, request: Delay, answer: Delay, event: Delay) -> None:
        self.timeline = timeline
        self.request, self.answer, self.event = request, answer, event
        self.lag: Delay = lambda: 0.0
        self.slow: Slowness = lambda _method, _kind: (0.0, 0.0)
        self.asked = 0
        self.refuses: Refusals = lambda _method, _kind: 0
        self._reach = Reach.WHOLE
        self._changes = 0
        self._open: list[Connection] = []
        self._held: deque[tuple[Connection, Action]] = deque()
        self._stalled: set[str] = set()
        self._stale: deque[tuple[Connection, Action]] = deque()

    @property
    def reach(self) -> Reach:
        """The fate of what is sent now."""
        return self._reach

    def set_reach(self, reach: Reach) -> None:
        """Break or mend the way."""
        self._reach = reach
        self._changes += 1
        if reach is Reach.REFUSED:
            self.reset()
        elif reach is Reach.DROPPED:
            for connection in self._open:
                self._give_up_later(connection, connection.unanswered)
        elif reach is Reach.WHOLE:
            _release(self._held)

    def stall(self, *kinds: str) -> None:
        """Let the watches of these kinds bring nothing, without breaking."""
        self._stalled |= set(kinds)

    def resume(self) -> None:
        """Let all watches bring what they have kept back."""
        self._stalled.clear()
        _release(self._stale)

    def silence(self, *kinds: str) -> None:
        """Let the watches of these kinds that are open now bring nothing any more.

        Their server is stopped for good, and another one answers what is opened from now on.
        """
        for connection in self._open:
            connection.is_silent |= connection.watches in kinds

    def reset(self) -> None:
        """Break all connections that are open, as a server does that ends; others are let in."""
        for connection in tuple(self._open):
            self._break(connection, ConnectionResetError("connection reset"))

    def open(self, connection: Connection, *, connect: float | None) -> None:
        """Begin a connection; OSError if it is refused."""
        self.asked += 1
        if self._reach is Reach.REFUSED:
            raise ConnectionRefusedError("connection refused")
        self._open.append(connection)
        if self._reach is Reach.DROPPED:
            limit = connection.unanswered if connect is None else connect
            self._give_up_later(connection, limit)

    def close(self, connection: Connection) -> None:
        """End a connection; what was sent on it still arrives."""
        connection.is_closed = True
        connection.forgotten()
        if connection in self._open:
            self._open.remove(connection)

    def abandon(self) -> None:
        """End all connections: their program is dead."""
        for connection in tuple(self._open):
            self.close(connection)

    def carry(self, connection: Connection, moment: int, action: Action) -> None:
        """Do this at a moment, or when the way is whole again; never if the connection breaks."""
        self.timeline.at(moment, partial(self._arrive, connection, action))

    def tell(self, connection: Connection, moment: int, action: Action) -> None:
        """Carry a line of a watch."""

        def arrive() -> None:
            if connection.is_silent:
                return
            if connection.watches in self._stalled:
                self._stale.append((connection, action))
            else:
                self._arrive(connection, action)

        self.timeline.at(moment, arrive)

    def _arrive(self, connection: Connection, action: Action) -> None:
        if self._reach is Reach.WHOLE:
            action()
        elif self._reach is not Reach.REFUSED:
            self._held.append((connection, action))

    def _give_up_later(self, connection: Connection, seconds: float) -> None:
        change = self._changes

        def give_up() -> None:
            if self._changes == change and connection in self._open:
                self._break(connection, TimeoutError("no acknowledgement"))

        self.timeline.after(seconds, give_up)

    def _break(self, connection: Connection, error: OSError) -> None:
        self._open.remove(connection)
        held = [entry for entry in self._held if entry[0] is not connection]
        self._held = deque(held)
        connection.broken(error)


def _release(held: deque[tuple[Connection, Action]]) -> None:
    while held:
        _connection, action = held.popleft()
        action()

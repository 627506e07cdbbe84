# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The numbers that the fence's programs read for each frame, in memory that the kernel shares."""

from __future__ import annotations

from purelb.core.fence.programs import CONTROL_BYTES, DEADLINE, DROPS, UNTIL
from purelb.core.node.left import Opened
from purelb_agent.runtime import clock

_WORD = 8
_NANOSECONDS = 1_000_000_000
_LAST = (1 << 64) - 1


class Control:
    """The value of the control map, or any memory of its size.

    Each number is one store of 8 bytes: a program on another processor reads the old one or the new
    one. `struct.pack_into` would not do: it clears the bytes first.
    """

    def __init__(
        self, memory: bytearray | memoryview, moment: bytearray | memoryview | None = None
    ) -> None:
        """`moment`: 8 bytes in which the next agent finds until when the fence is open.

        It cannot read the map. None: it is not to know.
        """
        self._words = memoryview(memory)[:CONTROL_BYTES].cast("Q")
        self._moment = memoryview(bytearray(_WORD) if moment is None else moment).cast("Q")
        # Until when the fence of the agent before this one is open.
        self._before = self._moment[0]
        # What it is to be open until, once nothing is left of a right that has ended.
        self._wanted: float | None = None
        self._is_clean = self._was_open = False

    @property
    def opened(self) -> Opened:
        """Whether it has been open; see core/node/left."""
        if not self._was_open:
            return Opened.BEFORE if self._before > _nanoseconds(clock.now()) else Opened.NOT_YET
        return Opened.EVER_SINCE if self._is_open() else Opened.SHUT

    def _is_open(self) -> bool:
        return self._words[DEADLINE // _WORD] > _nanoseconds(clock.now())

    def open_until(self, moment: float | None) -> None:
        """Let everything through until this moment on the boot clock; None: nothing from now on.

        If it is shut, it opens with the next `clean`. A store that comes late, of a process that
        was stopped before it, opens nothing: the moment has passed.
        """
        self._wanted = moment
        self._is_clean = self._is_clean and self._is_open()
        if moment is None or self._is_clean:
            self.store(moment)

    def clean(self) -> None:
        """Open it if there is a right: nothing is left of one that has ended."""
        self._is_clean = True
        if self._wanted is not None:
            self._was_open = True
            self.store(self._wanted)

    def store(self, moment: float | None) -> None:
        """Store the moment."""
        stored = 0 if moment is None else _nanoseconds(moment)
        self._words[DEADLINE // _WORD] = stored
        if self._was_open:
            self._moment[0] = stored

    def stand_until(self, moment: float) -> None:
        """Drop nothing any more from this moment on, however the agent ended.

        It is one on the monotonic clock: as lifetimes do, it stands still while the machine sleeps.
        """
        self._words[UNTIL // _WORD] = _nanoseconds(moment)

    @property
    def drops(self) -> int:
        """How many frames were dropped."""
        return self._words[DROPS // _WORD]

    def close(self) -> None:
        """Release the memory."""
        self._words.release()
        self._moment.release()


def _nanoseconds(moment: float) -> int:
    return _LAST if moment * _NANOSECONDS >= _LAST else max(0, int(moment * _NANOSECONDS))


def without_fence() -> Control:
    """Return numbers that no program reads."""
    return Control(bytearray(CONTROL_BYTES))

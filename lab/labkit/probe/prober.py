# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""A client that sends HTTP requests to the same addresses continuously and records the answers.

A process in the host's network namespace sends the requests (this file, run as a script: port,
pause, addresses); `Prober` starts it and reads its records. Times are of the monotonic clock, which
all processes of a machine share.
"""

import asyncio
import json
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import IO, TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from labkit.lab import Lab

# Seconds. A longer request went to an address without a holder; a new request finds the next holder
# sooner than the kernel's retransmitted SYN.
_TIMEOUT = 0.2
# Seconds between an answer and the next request to the same address: short compared with the
# interruptions to be measured, and long enough not to load a small machine.
_PAUSE = 0.05


@dataclass(frozen=True)
class Answer:
    """A request: when it was sent and ended, the body of the answer or None, and the error."""

    address: str
    sent: float
    ended: float
    body: str | None
    error: str = ""


class Prober:
    """Requests `http://<address>:<port>/` of each address until closed; a context manager."""

    def __init__(
        self,
        lab: "Lab",
        *addresses: str,
        host: str = "client",
        port: int = 80,
        pause: float = _PAUSE,
    ) -> None:
        """Send requests from a host of the lab; pause for `pause` seconds after each answer."""
        argv = [sys.executable, "-I", str(Path(__file__)), str(port), str(pause), *addresses]
        self._process = lab.popen_in(host, argv, stdout=subprocess.PIPE, text=True)
        self._answers: list[Answer] = []
        self._reader = threading.Thread(target=self._read, args=[self._process.stdout], daemon=True)

    def __enter__(self) -> Self:
        """Start reading records."""
        self._reader.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the process and wait for it."""
        self._process.kill()
        self._process.wait()
        self._reader.join()

    def _read(self, lines: IO[str]) -> None:
        with lines:
            for line in lines:
                self._answers.append(Answer(**json.loads(line)))

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All requests that have ended by now."""
        return tuple(self._answers)

    def wait_for_answer(self, address: str, *, after: float, seconds: float) -> Answer:
        """Return the first answer to a request sent at `after` or later. Raises TimeoutError."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            for answer in self.answers:
                if answer.address == address and answer.sent >= after and answer.body is not None:
                    return answer
            time.sleep(0.01)
        raise TimeoutError(f"no answer from {address} within {seconds:g} s")

    def longest_gap(self, address: str, *, since: float) -> float:
        """Return the longest time in seconds without an answer, from `since` to the last answer."""
        ends = [since] + [
            a.ended
            for a in self.answers
            if a.address == address and a.body is not None and a.ended > since
        ]
        return max((later - earlier for earlier, later in pairwise(ends)), default=float("inf"))


async def _fetch(address: str, port: int) -> str:
    reader, writer = await asyncio.open_connection(address, port)
    try:
        writer.write(f"GET / HTTP/1.0\r\nHost: {address}\r\n\r\n".encode())
        answer = await reader.read()
    finally:
        writer.transport.abort()
    return answer.decode(errors="replace").partition("\r\n\r\n")[2].strip()


async def _ask(address: str, port: int, pause: float) -> None:
    while True:
        sent, body, reason = time.monotonic(), "", "no body"
        try:
            async with asyncio.timeout(_TIMEOUT):
                body = await _fetch(address, port)
        except (OSError, TimeoutError) as error:
            reason = repr(error)
        record: dict[str, Any] = {
            "address": address,
            "sent": sent,
            "ended": time.monotonic(),
            "body": body or None,
            "error": "" if body else reason,
        }
        print(json.dumps(record), flush=True)
        await asyncio.sleep(pause)


async def _ask_all(port: int, pause: float, addresses: list[str]) -> None:
    await asyncio.gather(*(_ask(address, port, pause) for address in addresses))


if __name__ == "__main__":
    # End silently if the reader of the output has been killed.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    asyncio.run(_ask_all(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))

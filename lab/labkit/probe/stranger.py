# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A stranger on the segment that asks by ARP and NDP who has an address.

It sees what a client with an empty neighbor cache sees: whether anything answers, and whether two
MAC addresses do. `wire` does the work, as a script; times are of the monotonic clock.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from labkit.probe import wire
from labkit.probe.pinger import Recorder

if TYPE_CHECKING:
    from labkit.lab import Lab

# By address: when it was answered, and by which MAC address.
Answers = Mapping[str, Sequence[tuple[float, str]]]


class Stranger(Recorder):
    """Asks for each address every `every` seconds until stopped; a context manager."""

    def __init__(
        self,
        lab: Lab,
        *addresses: str,
        sources: Sequence[str],
        host: str = "client",
        every: float = 0.05,
    ) -> None:
        """Start asking from a host of the lab.

        `sources`: an unused IPv4 address of the segment, and an unused link-local one.
        """
        argv = [sys.executable, "-I", str(Path(wire.__file__)), str(every), *sources, *addresses]
        super().__init__(lab, host, argv)

    def stop(self) -> Answers:
        """Stop asking; return the answers for each address."""
        answers: Answers = self._recorded()
        return answers

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Sends ready-made frames on an interface (AF_PACKET; needs CAP_NET_RAW)."""

from __future__ import annotations

import socket
from collections.abc import Iterable


class FrameSender:
    """One socket for all interfaces and the life of its owner, opened when it is first needed.

    The kernel closes such a socket only when no processor can be using it any more: measured, that
    takes 6 to 20 ms, in which nothing else of the program runs.
    """

    def __init__(self) -> None:
        self._raw: socket.socket | None = None

    def send(self, interface: str, frames: Iterable[bytes]) -> None:
        """Send Ethernet frames; OSError if the interface is gone or down."""
        if self._raw is None:
            self._raw = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
        for frame in frames:
            self._raw.sendto(frame, (interface, 0))

    def close(self) -> None:
        """Close the socket, if there is one."""
        if self._raw is not None:
            self._raw.close()
            self._raw = None

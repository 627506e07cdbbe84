# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Receives frames on a packet socket."""

from __future__ import annotations

import socket


def received(ear: socket.socket, count: int = 0, *, source: bytes | None = None) -> list[bytes]:
    """Wait up to 5 s for so many frames, then 0.2 s for more; return all.

    With a `source`, a MAC address, other hosts' frames are skipped.
    """
    frames: list[bytes] = []
    while True:
        ear.settimeout(5 if len(frames) < count else 0.2)
        try:
            frame = ear.recv(2048)
        except TimeoutError:
            return frames
        if source in (None, frame[6:12]):
            frames.append(frame)

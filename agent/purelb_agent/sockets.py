# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Sends ready-made frames on an interface (AF_PACKET; needs CAP_NET_RAW)."""

from __future__ import annotations

import socket
from collections.abc import Iterable


def send_frames(interface: str, frames: Iterable[bytes]) -> None:
    """Send Ethernet frames; OSError if the interface is gone or down."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
        raw.bind((interface, 0))
        for frame in frames:
            raw.send(frame)

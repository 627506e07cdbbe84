# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Raw sockets on Ethernet interfaces (AF_PACKET; they need CAP_NET_RAW).

One sends ready-made frames. The other receives the few frames that can claim an address: the kernel
filters the traffic of a busy interface, so no other frame wakes the process.
"""

from __future__ import annotations

import ctypes
import socket
import struct
from collections.abc import Iterable

_ETH_P_ALL = 3
_SOL_PACKET = 263
# Linux 4.20. Without it the kernel would copy each frame that the node sends, to drop the copy.
_PACKET_IGNORE_OUTGOING = 23
_SO_ATTACH_FILTER = 26

# Classic BPF, linux/filter.h: what to load into A, how to compare it, whether to keep the frame.
_WORD, _HALF, _BYTE = 0x20, 0x28, 0x30  # BPF_LD | BPF_ABS | size
_TO_X = 0x07  # BPF_MISC | BPF_TAX
_EQUAL, _EQUAL_X, _HAS_BITS = 0x15, 0x1D, 0x45  # BPF_JMP | BPF_JEQ, BPF_JEQ | BPF_X, BPF_JSET
_RETURN = 0x06  # BPF_RET | BPF_K
_VLAN_TAG, _VLAN_PRESENT = 0xFFFFF000 + 44, 0xFFFFF000 + 48  # SKF_AD_OFF + SKF_AD_VLAN_...
_VLAN_ID = 0x0FFF
_ETHERTYPE, _ARP, _IPV6 = 12, 0x0806, 0x86DD
_ARP_OPERATION, _ARP_REPLY, _ARP_SENDER, _ARP_TARGET = 20, 2, 28, 38
_IPV6_PROTOCOL, _ICMPV6, _ICMPV6_TYPE, _ADVERTISEMENT = 20, 58, 54, 136
_WHOLE_FRAME = 0xFFFF

# Rows of (code, rows to skip if true, rows to skip if false, operand), each with its number. A load
# past the end of a frame drops the frame.
_FILTER = (
    # A frame of another VLAN passes here on its way to its own interface: not a claim on this one.
    (_WORD, 0, 0, _VLAN_PRESENT),  # 0
    (_EQUAL, 2, 0, 0),  # 1: untagged, to 4
    (_WORD, 0, 0, _VLAN_TAG),  # 2
    (_HAS_BITS, 14, 0, _VLAN_ID),  # 3: drop; VLAN 0 is no VLAN, only a priority
    (_HALF, 0, 0, _ETHERTYPE),  # 4
    (_EQUAL, 0, 6, _ARP),  # 5: else to 12
    # ARP: a reply, or an announcement, in which sender and target are the same.
    (_HALF, 0, 0, _ARP_OPERATION),  # 6
    (_EQUAL, 9, 0, _ARP_REPLY),  # 7: keep
    (_WORD, 0, 0, _ARP_SENDER),  # 8
    (_TO_X, 0, 0, 0),  # 9
    (_WORD, 0, 0, _ARP_TARGET),  # 10
    (_EQUAL_X, 5, 6, 0),  # 11: keep or drop
    # IPv6: a neighbour advertisement.
    (_EQUAL, 0, 5, _IPV6),  # 12: else drop
    (_BYTE, 0, 0, _IPV6_PROTOCOL),  # 13
    (_EQUAL, 0, 3, _ICMPV6),  # 14: else drop
    (_BYTE, 0, 0, _ICMPV6_TYPE),  # 15
    (_EQUAL, 0, 1, _ADVERTISEMENT),  # 16: else drop
    (_RETURN, 0, 0, _WHOLE_FRAME),  # 17: keep
    (_RETURN, 0, 0, 0),  # 18: drop
)


class FrameSender:
    """One socket for all interfaces, opened at its first use and kept until it is closed.

    The kernel closes such a socket only when no processor can be using it any more: 6 to 20 ms,
    measured, in which the event loop would stand still.
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
        """Close the socket if it is open; the next frame opens another one."""
        if self._raw is not None:
            self._raw.close()
            self._raw = None


def listen_for_claims(interface: str) -> socket.socket:
    """Return a non-blocking socket that receives claims of addresses; OSError if it cannot.

    It receives what may be a claim; `core.node.packets.parse_claim` decides whether it is one.
    """
    # Without a protocol until it has its filter and interface, so it receives no other frames.
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    try:
        opened.setblocking(False)
        opened.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        rows = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *row) for row in _FILTER))
        program = struct.pack("HP", len(_FILTER), ctypes.addressof(rows))
        opened.setsockopt(socket.SOL_SOCKET, _SO_ATTACH_FILTER, program)
        opened.bind((interface, _ETH_P_ALL))
    except OSError:
        opened.close()
        raise
    return opened

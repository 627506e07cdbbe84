# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The script of `stranger`: asks by ARP and NDP who has an address, again and again.

It has a MAC address and IP addresses of its own, so no host learns anything about the client in
whose network namespace it runs, and the client learns nothing either.
"""

import json
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Sequence
from ipaddress import ip_address

_Lists = dict[str, list[tuple[float, str]]]
_INTERFACE = "eth0"
_MAC = "02:00:00:00:fe:fe"
_ARP, _IPV6 = 0x0806, 0x86DD
_ALL_FRAMES, _PROMISCUOUS, _ADD = 3, 1, 1  # linux/if_ether.h, linux/if_packet.h
_SOL_PACKET = 263
_REPLY, _ADVERTISEMENT = 2, 136


def question(address: str, sources: Sequence[str]) -> bytes:
    """Return the frame that asks who has an address."""
    from scapy.layers.inet6 import (  # noqa: PLC0415 - only the script needs it; takes a second
        ICMPv6ND_NS,
        ICMPv6NDOptSrcLLAddr,
        IPv6,
    )
    from scapy.layers.l2 import ARP, Ether  # noqa: PLC0415

    if ":" not in address:
        arp = ARP(op="who-has", hwsrc=_MAC, psrc=sources[0], pdst=address)
        return bytes(Ether(src=_MAC, dst="ff:ff:ff:ff:ff:ff") / arp)
    low = ip_address(address).packed[-3:]
    group = str(ip_address(ip_address("ff02::1:ff00:0").packed[:13] + low))
    mac = "33:33:ff:" + low.hex(":")
    ask = ICMPv6ND_NS(tgt=address) / ICMPv6NDOptSrcLLAddr(lladdr=_MAC)
    return bytes(Ether(src=_MAC, dst=mac) / IPv6(src=sources[1], dst=group) / ask)


def answered(frame: bytes) -> tuple[str, str] | None:
    """Return the address that a frame to the stranger answers for, and the MAC address."""
    if frame[:6].hex(":") != _MAC:
        return None
    (kind,) = struct.unpack_from("!H", frame, 12)
    source = frame[6:12].hex(":")
    if kind == _ARP and struct.unpack_from("!H", frame, 20)[0] == _REPLY:
        return str(ip_address(frame[28:32])), source
    if kind == _IPV6 and frame[54] == _ADVERTISEMENT:
        return str(ip_address(frame[62:78])), source
    return None


def _open() -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(_ALL_FRAMES))
    opened.bind((_INTERFACE, 0))
    # The answers go to a MAC address that is not the interface's own.
    member = struct.pack("iHH8s", socket.if_nametoindex(_INTERFACE), _PROMISCUOUS, 0, b"")
    opened.setsockopt(_SOL_PACKET, _ADD, member)
    opened.setblocking(False)
    return opened


def _listen(opened: socket.socket, until: float, answers: _Lists) -> bool:
    """Record answers until then; return False if a line on standard input asks to stop."""
    while (left := until - time.monotonic()) > 0:
        ready, _writable, _failed = select.select([sys.stdin, opened], [], [], left)
        if sys.stdin in ready:
            return False
        try:
            while True:
                found = answered(opened.recv(128))
                if found and found[0] in answers:
                    answers[found[0]].append((time.monotonic(), found[1]))
        except BlockingIOError:
            pass
    return True


def _ask(every: float, sources: Sequence[str], addresses: Sequence[str]) -> None:
    questions = [question(address, sources) for address in addresses]
    answers: _Lists = {str(ip_address(address)): [] for address in addresses}
    opened, due = _open(), time.monotonic()
    goes_on = True
    while goes_on:
        for frame in questions:
            try:
                opened.send(frame)
            except OSError:
                continue  # The next one may be sent.
        due += every
        goes_on = _listen(opened, due, answers)
    found = {address: answers[str(ip_address(address))] for address in addresses}
    print(json.dumps(found))


if __name__ == "__main__":
    # End silently if the reader of the output has been killed.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    _ask(float(sys.argv[1]), sys.argv[2:4], sys.argv[4:])

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The programs of the fence: what a node drops of addresses that it may not hold.

The kernel runs them for each frame of an interface (tc, clsact). The right is a moment on the boot
clock in a map that the agent writes: a frozen or dead agent writes nothing, so its addresses fall
silent at that moment, to the microsecond. Until then a frame costs one reading of the clock, and
ARP a look at its sender: only the interface that has an address of ours says so, on the node that
is to have it. By default the kernel answers on every interface for what is on any of them.

The addresses in a frame are read at their fixed places; nothing else about it is trusted.
"""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from ..model import Address
from .instructions import (
    BOOT_CLOCK,
    BYTE_ORDER,
    FRAME_POINTER,
    LOAD_BYTES,
    LOOK_UP,
    MAP_FD,
    MAP_VALUE,
    MONOTONIC_CLOCK,
    Label,
    Rows,
    add,
    add_atomically,
    assemble,
    call,
    constant_64,
    copy,
    jump,
    jump_if,
    jump_if_register,
    leave,
    load,
    move,
    store,
    store_register,
)

# Offsets in the one value of the control map, each a number of 8 bytes. Nanoseconds, of the end of
# the right (on the boot clock: it passes while the machine sleeps), and of when nothing can be left
# that the fence stands for, so that it lets everything through again (on the monotonic clock, with
# which lifetimes stand still during sleep). The third one counts what was dropped.
DEADLINE, UNTIL, DROPS = 0, 8, 16
CONTROL_BYTES = 24
# The map of addresses. Its key: IPv6, or IPv4 as ::ffff:a.b.c.d. Its value: the index of the
# interface that has the address; or 0, another node is to have it; or any of the node may say that
# it has it, as frames of its interface leave by others, too.
KEY_BYTES, VALUE_BYTES = 16, 4
ELSEWHERE, ANYWHERE = 0, 0x7FFFFFFF
_MAPPED = b"\0\0\xff\xff"

# Results, linux/pkt_cls.h: ask the next filter (never TC_ACT_OK, which asks none), or drop.
_PASS, _DROP = -1, 2
# struct __sk_buff, linux/bpf.h: the protocol, which the sender of a packet socket chooses, the tag
# that the interface took out of the frame, and the interface.
_PROTOCOL, _VLAN_PRESENT, _VLAN_TCI, _INTERFACE = 16, 20, 24, 40
_VLAN_ID = 0xFFF
_IPV4, _IPV6, _ARP = 0x0800, 0x86DD, 0x0806
_TAGGED, _TAGGED_TWICE = 0x8100, 0x88A8
_ICMPV6, _ADVERTISEMENT = 58, 136
# Places in an Ethernet frame without tags: ARP's sender; source, destination and protocol of IPv4
# and IPv6; type and target of a neighbour advertisement.
_ETHERTYPE, _ARP_SENDER = 12, 28
_V4_SOURCE, _V4_DESTINATION = 26, 30
_V6_PROTOCOL, _V6_SOURCE, _V6_DESTINATION = 20, 22, 38
_ICMP_TYPE, _ICMP_TARGET = 54, 62
_TAG_BYTES = 4
# A frame has at most two tags that its interface left in it.
_MOST_TAGS = 2

# Places on the stack: the key, in it an IPv4 address, a small number, and the time.
_KEY, _KEY_MAPPED, _KEY_V4, _NUMBER, _NOW = -16, -8, -4, -24, -32
# Registers: the frame, the clock and then the length of the tags, the control, the ethertype.
_FRAME, _CLOCK, _TAGS, _CONTROL, _TYPE = 6, 7, 7, 8, 9


class FenceProgram(str, Enum):
    """Which frames a program looks at, by the name that it has in the kernel.

    INGRESS and EGRESS: to and from an address, and on egress all that says where it is, on an
    interface that announces. ARP: answers on another one, where the kernel gives them as well
    (arp_ignore 0).
    """

    INGRESS = "purelb_in"
    EGRESS = "purelb_out"
    ARP = "purelb_arp"


class Maps(NamedTuple):
    """File descriptors of the two maps."""

    control: int
    vips: int


def key_of(address: Address) -> bytes:
    """Return the key of an address in the map of addresses."""
    packed = address.packed
    if len(packed) == KEY_BYTES:
        return packed
    return bytes(KEY_BYTES - len(_MAPPED) - len(packed)) + _MAPPED + packed


def code_of(program: FenceProgram, maps: Maps, *, byte_order: str = BYTE_ORDER) -> bytes:
    """Return a program as the kernel loads it."""
    return assemble(_Writer(maps, byte_order).rows(program), byte_order=byte_order)


class _Writer:
    """Writes the instructions of each program."""

    def __init__(self, maps: Maps, byte_order: str) -> None:
        self._maps = maps
        self._byte_order = byte_order

    def rows(self, program: FenceProgram) -> Rows:
        looks = {
            FenceProgram.INGRESS: self._ingress,
            FenceProgram.EGRESS: self._egress,
            FenceProgram.ARP: self._arp,
        }
        if program is FenceProgram.INGRESS:
            open_rows: Rows = [jump("pass")]
        else:
            looked_at = (_ARP, _TAGGED, _TAGGED_TWICE)
            open_rows = [
                load(4, 1, _FRAME, _PROTOCOL),
                *(jump_if(1, "==", self._network(kind), "look") for kind in looked_at),
                jump("pass"),
            ]
        return [*self._head(open_rows), *looks[program](), *self._tail()]

    def _network(self, number: int) -> int:
        """Return a 16-bit number of a frame as the machine loads it."""
        return self._loaded(number.to_bytes(2, "big"))

    def _loaded(self, data: bytes, *, signed: bool = False) -> int:
        is_little = self._byte_order == "little"
        return int.from_bytes(data, "little" if is_little else "big", signed=signed)

    @staticmethod
    def _read(offset: int, place: int, size: int) -> Rows:
        """Copy bytes of the frame, behind its tags, to the stack; what is too short passes."""
        return [
            copy(1, _FRAME),
            copy(2, _TAGS),
            add(2, offset),
            copy(3, FRAME_POINTER),
            add(3, place),
            move(4, size),
            call(LOAD_BYTES),
            jump_if(0, "!=", 0, "pass"),
        ]

    def _read_type(self) -> Rows:
        read = self._read(_ETHERTYPE, _NUMBER, 2)
        return [*read, load(2, _TYPE, FRAME_POINTER, _NUMBER)]

    def _look_up(self) -> Rows:
        """Look the key up: r0 is the address of its value, or 0."""
        return [
            *constant_64(1, MAP_FD, self._maps.vips),
            copy(2, FRAME_POINTER),
            add(2, _KEY),
            call(LOOK_UP),
        ]

    def _find(self) -> Rows:
        """Look the key up: r1 is its value; what is no address of ours passes."""
        return [
            *self._look_up(),
            jump_if(0, "==", 0, "pass"),
            load(VALUE_BYTES, 1, 0, 0),
        ]

    def _map(self) -> Rows:
        """Complete the key of an IPv4 address.

        All of it is written: the verifier refuses one that is not (without CAP_PERFMON).
        """
        mapped = self._loaded(_MAPPED, signed=True)
        return [store(8, FRAME_POINTER, _KEY, 0), store(4, FRAME_POINTER, _KEY_MAPPED, mapped)]

    def _head(self, open_rows: Rows) -> Rows:
        """Pass what is not looked at while open, and another VLAN."""
        rows: Rows = [
            copy(_FRAME, 1),
            call(BOOT_CLOCK),
            copy(_CLOCK, 0),
            *constant_64(_CONTROL, MAP_VALUE, self._maps.control),
            store_register(FRAME_POINTER, _NOW, _CLOCK),
            load(8, 1, _CONTROL, DEADLINE),
            jump_if_register(_CLOCK, ">=", 1, "look"),
            *open_rows,
            Label("look"),
            load(4, 1, _FRAME, _VLAN_PRESENT),
            jump_if(1, "==", 0, "untagged"),
            load(4, 1, _FRAME, _VLAN_TCI),
            jump_if(1, "&", _VLAN_ID, "pass"),
            Label("untagged"),
            move(_TAGS, 0),
            *self._read_type(),
        ]
        for tag in range(_MOST_TAGS):
            rows += [
                jump_if(_TYPE, "==", self._network(_TAGGED), f"tag{tag}"),
                jump_if(_TYPE, "!=", self._network(_TAGGED_TWICE), "payload"),
                Label(f"tag{tag}"),
                add(_TAGS, _TAG_BYTES),
                *self._read_type(),
            ]
        return [*rows, Label("payload")]

    def _ingress(self) -> Rows:
        return [
            jump_if(_TYPE, "==", self._network(_IPV4), "ipv4"),
            jump_if(_TYPE, "!=", self._network(_IPV6), "pass"),
            *self._read(_V6_DESTINATION, _KEY, KEY_BYTES),
            jump("find"),
            Label("ipv4"),
            *self._read(_V4_DESTINATION, _KEY_V4, 4),
            *self._map(),
            Label("find"),
            *self._find(),
            jump_if(1, "==", ELSEWHERE, "pass"),
        ]

    def _egress(self) -> Rows:
        return [
            jump_if(_TYPE, "==", self._network(_IPV4), "ipv4"),
            jump_if(_TYPE, "!=", self._network(_IPV6), "arp"),
            *self._read(_V6_SOURCE, _KEY, KEY_BYTES),
            *self._look_up(),
            jump_if(0, "!=", 0, "find"),
            # An advertisement about an address of ours has any source.
            *self._read(_V6_PROTOCOL, _NUMBER, 1),
            load(1, 1, FRAME_POINTER, _NUMBER),
            jump_if(1, "!=", _ICMPV6, "pass"),
            *self._read(_ICMP_TYPE, _NUMBER, 1),
            load(1, 1, FRAME_POINTER, _NUMBER),
            jump_if(1, "!=", _ADVERTISEMENT, "pass"),
            *self._read(_ICMP_TARGET, _KEY, KEY_BYTES),
            jump("find"),
            Label("ipv4"),
            *self._read(_V4_SOURCE, _KEY_V4, 4),
            *self._map(),
            Label("find"),
            *self._find(),
            jump_if(1, "==", ELSEWHERE, "pass"),
            jump("here"),
            Label("arp"),
            *self._arp(),
        ]

    def _arp(self) -> Rows:
        return [
            jump_if(_TYPE, "!=", self._network(_ARP), "pass"),
            *self._read(_ARP_SENDER, _KEY_V4, 4),
            *self._map(),
            *self._find(),
            jump_if(1, "==", ANYWHERE, "here"),
            load(4, 2, _FRAME, _INTERFACE),
            jump_if_register(1, "!=", 2, "drop"),
        ]

    @staticmethod
    def _tail() -> Rows:
        """Drop what is of an address of this node once its right has ended, and count it.

        Not once the fence is over: no one is left to take it away.
        """
        return [
            Label("here"),
            load(8, 1, _CONTROL, DEADLINE),
            load(8, 2, FRAME_POINTER, _NOW),
            jump_if_register(2, "<", 1, "pass"),
            Label("drop"),
            call(MONOTONIC_CLOCK),
            load(8, 1, _CONTROL, UNTIL),
            jump_if_register(0, ">=", 1, "pass"),
            move(1, 1),
            add_atomically(_CONTROL, DROPS, 1),
            move(0, _DROP),
            leave(),
            Label("pass"),
            move(0, _PASS),
            leave(),
        ]

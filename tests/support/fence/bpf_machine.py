# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the fence's programs on frames, without a kernel: the instructions that they are made of.

How to use it:

    machine = Machine({key_of(VIP4): ANYWHERE}, deadline=0, until=100)
    machine.run(code_of(FenceProgram.EGRESS, MAPS), frame, now=50)   # -1: pass, 2: drop
    machine.drops
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping

from purelb.core.fence.instructions import (
    BOOT_CLOCK,
    LOAD_BYTES,
    LOOK_UP,
    MAP_VALUE,
    MONOTONIC_CLOCK,
)
from purelb.core.fence.programs import Maps

MAPS = Maps(control=3, vips=4)
PASS, DROP = -1, 2
# On which frames are.
INTERFACE = 2
# Where things are in the machine's memory.
_STACK, _CONTROL, _SKB, _VALUE = 0x1000, 0x2000, 0x3000, 0x4000
_FULL = (1 << 64) - 1


class Machine:
    """A control map, a map of addresses, and clocks; `slept`: how far they are apart."""

    def __init__(
        self, vips: Mapping[bytes, int], *, deadline: int, until: int, slept: int = 0
    ) -> None:
        self._slept = slept
        self._vips = vips
        self._control = bytearray(struct.pack("=QQQ", deadline, until, 0))

    @property
    def drops(self) -> int:
        """What the programs counted."""
        return int.from_bytes(self._control[16:24], "little")

    def run(self, code: bytes, frame: bytes, *, now: int, vlan: int | None = None) -> int:
        """Run a program on a frame; `vlan`: the tag that the interface took out of it."""
        clocks = {BOOT_CLOCK: now, MONOTONIC_CLOCK: now - self._slept}
        return _Run(self._vips, self._control, frame, clocks, vlan).result(code)


class _Run:
    """One run: registers, and memory by the address at which each piece begins."""

    def __init__(
        self,
        vips: Mapping[bytes, int],
        control: bytearray,
        frame: bytes,
        clocks: Mapping[int, int],
        vlan: int | None,
    ) -> None:
        self._vips, self._frame, self._clocks = vips, frame, clocks
        skb = bytearray(64)
        struct.pack_into("<H", skb, 16, int.from_bytes(frame[12:14], "little"))
        struct.pack_into("<II", skb, 20, vlan is not None, vlan or 0)
        struct.pack_into("<I", skb, 40, INTERFACE)
        self._memory = {_STACK: bytearray(b"\xee" * 64), _CONTROL: control, _SKB: skb}
        self._r = [0] * 11
        self._r[1], self._r[10] = _SKB, _STACK + 64

    def result(self, code: bytes) -> int:
        """Run a program to its end."""
        rows = [struct.unpack_from("<BBhi", code, at) for at in range(0, len(code), 8)]
        at = 0
        while rows[at][0] != _EXIT:
            at += 1 + self._step(*rows[at])
        return self._r[0] - (1 << 64) if self._r[0] >> 63 else self._r[0]

    def _step(self, op: int, registers: int, offset: int, imm: int) -> int:
        """Carry out an instruction; returns how many of those after it are left out."""
        r, dst, src = self._r, registers & 15, registers >> 4
        if op in _JUMPS:
            return offset if _JUMPS[op](r[dst], r[src], imm) else 0
        if op in _SETS:
            r[dst] = _SETS[op](r[dst], r[src], imm) & _FULL
        elif op in _LOADS:
            r[dst] = self._number(r[src] + offset, _LOADS[op])
        elif op in _STORES:
            self._set(r[dst] + offset, imm, _STORES[op])
        elif op == _STORE_REGISTER:
            self._set(r[dst] + offset, r[src], 8)
        elif op == _ADD_ATOMICALLY:
            self._set(r[dst] + offset, self._number(r[dst] + offset, 8) + r[src], 8)
        elif op == _CALL:
            r[0] = self._help(imm)
            r[1:6] = [0xDEAD] * 5
        else:
            assert (op, src, imm) in {(0x18, 1, MAPS.vips), (0x18, 2, MAPS.control)}
            r[dst] = _CONTROL if src == MAP_VALUE else MAPS.vips
            return 1
        return 0

    def _place(self, address: int) -> tuple[bytearray, int]:
        base = address & ~0xFFF
        return self._memory[base], address - base

    def _number(self, address: int, size: int) -> int:
        data, place = self._place(address)
        return int.from_bytes(data[place : place + size], "little")

    def _set(self, address: int, number: int, size: int) -> None:
        data, place = self._place(address)
        data[place : place + size] = (number & ((1 << 8 * size) - 1)).to_bytes(size, "little")

    def _help(self, helper: int) -> int:
        r = self._r
        if helper in self._clocks:
            return self._clocks[helper]
        if helper == LOOK_UP:
            assert r[1] == MAPS.vips
            data, place = self._place(r[2])
            value = self._vips.get(bytes(data[place : place + 16]))
            self._memory[_VALUE] = bytearray((value or 0).to_bytes(4, "little"))
            return 0 if value is None else _VALUE
        assert helper == LOAD_BYTES
        begin, size = r[2], r[4]
        data, place = self._place(r[3])
        if begin + size > len(self._frame):
            return 1
        data[place : place + size] = self._frame[begin : begin + size]
        return 0


_EXIT, _CALL, _ADD_ATOMICALLY, _STORE_REGISTER = 0x95, 0x85, 0xDB, 0x7B
_LOADS = {0x71: 1, 0x69: 2, 0x61: 4, 0x79: 8}
_STORES = {0x62: 4, 0x7A: 8}
_SETS: dict[int, Callable[[int, int, int], int]] = {
    0xB7: lambda _dst, _src, imm: imm,
    0xBF: lambda _dst, src, _imm: src,
    0x07: lambda dst, _src, imm: dst + imm,
}
_JUMPS: dict[int, Callable[[int, int, int], bool]] = {
    0x05: lambda _dst, _src, _imm: True,
    0x15: lambda dst, _src, imm: dst == imm,
    0x55: lambda dst, _src, imm: dst != imm,
    0x45: lambda dst, _src, imm: bool(dst & imm),
    0x3D: lambda dst, src, _imm: dst >= src,
    0xAD: lambda dst, src, _imm: dst < src,
    0x5D: lambda dst, src, _imm: dst != src,
}

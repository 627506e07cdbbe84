# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Writes programs for the kernel's BPF machine: the few instructions that the fence needs.

A program is a list of instructions and labels; `assemble` turns it into bytes. Encoding: the
kernel's Documentation/bpf/standardization/instruction-set.rst.
"""

from __future__ import annotations

import struct
from typing import List, NamedTuple, Tuple, Union

# Helpers, by their numbers in linux/bpf.h.
LOOK_UP, MONOTONIC_CLOCK, LOAD_BYTES, BOOT_CLOCK = 1, 5, 26, 125
# What the second register of a 64-bit constant says that the constant is (BPF_PSEUDO_MAP_...).
MAP_FD, MAP_VALUE = 1, 2
FRAME_POINTER = 10

BYTE_ORDER = "little" if struct.pack("=H", 1) == b"\1\0" else "big"
_CONSTANT_64 = 0x18
_LOADS = {1: 0x71, 2: 0x69, 4: 0x61, 8: 0x79}
_STORES = {4: 0x62, 8: 0x7A}
_IF = {"==": 0x15, "!=": 0x55, "&": 0x45}
_IF_REGISTER = {">=": 0x3D, "<": 0xAD, "!=": 0x5D}


class Label(NamedTuple):
    """A place in a program that jumps name."""

    name: str


class Instruction(NamedTuple):
    """One instruction; `target`: the label that a jump leads to, empty if it is none."""

    code: int
    dst: int = 0
    src: int = 0
    offset: int = 0
    constant: int = 0
    target: str = ""


Rows = List[Union[Instruction, Label]]


def move(dst: int, constant: int) -> Instruction:
    """Set a register to a constant."""
    return Instruction(0xB7, dst, constant=constant)


def copy(dst: int, src: int) -> Instruction:
    """Set a register to the value of another one."""
    return Instruction(0xBF, dst, src)


def add(dst: int, constant: int) -> Instruction:
    """Add a constant to a register."""
    return Instruction(0x07, dst, constant=constant)


def load(size: int, dst: int, src: int, offset: int) -> Instruction:
    """Set a register to the number of `size` bytes at the address in `src`, plus an offset."""
    return Instruction(_LOADS[size], dst, src, offset)


def store(size: int, dst: int, offset: int, constant: int) -> Instruction:
    """Write a constant of `size` bytes to the address in `dst`, plus an offset."""
    return Instruction(_STORES[size], dst, offset=offset, constant=constant)


def store_register(dst: int, offset: int, src: int) -> Instruction:
    """Write the 8 bytes of a register to the address in `dst`, plus an offset."""
    return Instruction(0x7B, dst, src, offset)


def add_atomically(dst: int, offset: int, src: int) -> Instruction:
    """Add a register to the 8 bytes at the address in `dst`, plus an offset."""
    return Instruction(0xDB, dst, src, offset)


def constant_64(dst: int, kind: int, number: int) -> Tuple[Instruction, Instruction]:
    """Set a register to a map (MAP_FD), or to the address of an array's value (MAP_VALUE)."""
    return Instruction(_CONSTANT_64, dst, kind, constant=number), Instruction(0)


def call(helper: int) -> Instruction:
    """Call a helper of the kernel: arguments in r1 to r5, the result in r0."""
    return Instruction(0x85, constant=helper)


def jump(target: str) -> Instruction:
    """Continue at a label."""
    return Instruction(0x05, target=target)


def jump_if(dst: int, comparison: str, constant: int, target: str) -> Instruction:
    """Continue at a label if the comparison (`==`, `!=`, or `&`: has one of the bits) holds."""
    return Instruction(_IF[comparison], dst, constant=constant, target=target)


def jump_if_register(dst: int, comparison: str, src: int, target: str) -> Instruction:
    """Continue at a label if the comparison of two unsigned registers (`>=`, `<`, `!=`) holds."""
    return Instruction(_IF_REGISTER[comparison], dst, src, target=target)


def leave() -> Instruction:
    """End the program; r0 is its result."""
    return Instruction(0x95)


def assemble(rows: Rows, *, byte_order: str = BYTE_ORDER) -> bytes:
    """Return the bytes of a program; `byte_order` is that of the machine, `little` or `big`.

    KeyError for a jump to a label that is not there.
    """
    code: List[Instruction] = []
    labels = {}
    for row in rows:
        if isinstance(row, Label):
            labels[row.name] = len(code)
        else:
            code.append(row)
    fields = struct.Struct(("<" if byte_order == "little" else ">") + "BBhi")
    return b"".join(
        fields.pack(
            row.code,
            _registers(row, byte_order),
            labels[row.target] - at - 1 if row.target else row.offset,
            row.constant,
        )
        for at, row in enumerate(code)
    )


def _registers(row: Instruction, byte_order: str) -> int:
    low, high = (row.dst, row.src) if byte_order == "little" else (row.src, row.dst)
    return low | high << 4

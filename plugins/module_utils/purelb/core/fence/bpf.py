# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The system call bpf(): its numbers, its commands, and the attributes that they take.

Attributes (union bpf_attr, linux/bpf.h) may leave off zeros at their end. All in the machine's byte
order.
"""

from __future__ import annotations

import struct

from .programs import CONTROL_BYTES, KEY_BYTES, VALUE_BYTES, FenceProgram

# By machine, as os.uname() names it; the four last columns of the kernel's tables.
SYSCALL_NUMBERS = {
    "x86_64": 321,
    "aarch64": 280,
    "riscv64": 280,
    "s390x": 351,
    "ppc64le": 361,
}
MAP_CREATE, MAP_UPDATE, MAP_DELETE, PROG_LOAD, PROG_QUERY = 0, 2, 3, 5, 16
# Attach types of tcx, by whether it is egress.
TCX = {False: 46, True: 47}
# More addresses than this cannot be fenced.
MOST_VIPS = 16384
# None of the helpers that the programs call asks for the GPL.
LICENSE = b"Apache-2.0\0"
QUERY_BYTES = 64

_NAME_BYTES = 16
_TYPE_HASH, _TYPE_ARRAY = 1, 2
_NO_PREALLOC, _MMAPABLE = 1, 1 << 10
_SCHED_CLS = 3
# Type, size of keys and values, entries, flags, inner map, NUMA node, name.
_MAP = struct.Struct(f"=7I{_NAME_BYTES}s")
_KEY = struct.Struct("=IIQ")  # map, padding, address of the key
_ELEMENT = struct.Struct("=IIQQQ")  # and address of the value, flags
# Type, instructions, addresses of them and of the license; level, size and address of the log;
# kernel version, flags, name, interface.
_PROGRAM = struct.Struct(f"=IIQQIIQII{_NAME_BYTES}sI")
_QUERY = struct.Struct("=IIIIQIIQQQQ")
_QUERY_COUNT = struct.Struct("=24xI")


def control_map() -> bytes:
    """Return the attributes of MAP_CREATE for the control map, whose value can be mapped."""
    return _MAP.pack(_TYPE_ARRAY, 4, CONTROL_BYTES, 1, _MMAPABLE, 0, 0, b"purelb_ctl")


def vips_map() -> bytes:
    """Return the attributes of MAP_CREATE for the map of addresses."""
    sizes = (KEY_BYTES, VALUE_BYTES, MOST_VIPS)
    return _MAP.pack(_TYPE_HASH, *sizes, _NO_PREALLOC, 0, 0, b"purelb_vips")


def update(map_fd: int, key_at: int, value_at: int) -> bytes:
    """Return the attributes of MAP_UPDATE; `..._at`: addresses in this process."""
    return _ELEMENT.pack(map_fd, 0, key_at, value_at, 0)


def delete(map_fd: int, key_at: int) -> bytes:
    """Return the attributes of MAP_DELETE."""
    return _KEY.pack(map_fd, 0, key_at)


def load_program(
    program: FenceProgram,
    *,
    size: int,
    code_at: int,
    license_at: int,
    log_at: int = 0,
    log_size: int = 0,
) -> bytes:
    """Return the attributes of PROG_LOAD; `size`: bytes of the program at `code_at`.

    A log that is too small is an error of its own, so it is asked for after a refusal only.
    """
    name = program.value.encode()
    level = 1 if log_size else 0
    count = size // 8
    return _PROGRAM.pack(
        _SCHED_CLS, count, code_at, license_at, level, log_size, log_at, 0, 0, name, 0
    )


def query_tcx(index: int, *, is_egress: bool) -> bytes:
    """Return the attributes of PROG_QUERY for the tcx programs of an interface."""
    return _QUERY.pack(index, TCX[is_egress], 0, 0, 0, 0, 0, 0, 0, 0, 0)


def parse_query(attributes: bytes) -> int:
    """Return how many programs the kernel counted."""
    (count,) = _QUERY_COUNT.unpack_from(attributes)
    return int(count)

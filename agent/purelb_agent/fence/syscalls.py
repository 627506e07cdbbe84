# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Makes the system call bpf(), which Python has no function for."""

from __future__ import annotations

import ctypes
import errno
import os

from purelb.core.fence import bpf
from purelb.core.fence.programs import FenceProgram

_LOG_BYTES = 1 << 16


class Bpf:
    """The commands of bpf(); OSError if the kernel refuses one."""

    def __init__(self) -> None:
        """OSError (ENOSYS) for a machine whose number of the call is not known."""
        machine = os.uname().machine
        number = bpf.SYSCALL_NUMBERS.get(machine)
        if number is None:
            raise OSError(errno.ENOSYS, f"bpf() on {machine}: number not known")
        self._number = number
        self._call = ctypes.CDLL(None, use_errno=True).syscall
        self._call.restype = ctypes.c_long

    def _do(self, command: int, attributes: ctypes.Array[ctypes.c_char]) -> int:
        size = len(attributes)
        result = self._call(
            ctypes.c_long(self._number), ctypes.c_int(command), attributes, ctypes.c_uint(size)
        )
        if result < 0:
            code = ctypes.get_errno()
            raise OSError(code, os.strerror(code))
        return int(result)

    def create_map(self, attributes: bytes) -> int:
        """Create a map and return its file descriptor."""
        return self._do(bpf.MAP_CREATE, _buffer(attributes))

    def update(self, map_fd: int, key: bytes, value: bytes) -> None:
        """Set the value of a key."""
        at, value_at = _buffer(key), _buffer(value)
        attributes = bpf.update(map_fd, ctypes.addressof(at), ctypes.addressof(value_at))
        self._do(bpf.MAP_UPDATE, _buffer(attributes))

    def delete(self, map_fd: int, key: bytes) -> None:
        """Delete a key, unless there is none."""
        at = _buffer(key)
        try:
            self._do(bpf.MAP_DELETE, _buffer(bpf.delete(map_fd, ctypes.addressof(at))))
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise

    def load(self, program: FenceProgram, code: bytes) -> int:
        """Load a program and return its file descriptor; the error has what the verifier says."""
        try:
            return self._load(program, code)
        except OSError as error:
            log = ctypes.create_string_buffer(_LOG_BYTES)
            try:
                return self._load(program, code, log)
            except OSError:
                said = log.value.decode(errors="replace").splitlines()
                # The last line is what the verifier did until then.
                text = "; ".join([os.strerror(error.errno or 0), *said[:-1][-1:]])
                raise OSError(error.errno, text) from None

    def _load(
        self, program: FenceProgram, code: bytes, log: ctypes.Array[ctypes.c_char] | None = None
    ) -> int:
        at, license_at = _buffer(code), _buffer(bpf.LICENSE)
        attributes = bpf.load_program(
            program,
            size=len(code),
            code_at=ctypes.addressof(at),
            license_at=ctypes.addressof(license_at),
            log_at=0 if log is None else ctypes.addressof(log),
            log_size=0 if log is None else len(log),
        )
        return self._do(bpf.PROG_LOAD, _buffer(attributes))

    def count_tcx(self, index: int, *, is_egress: bool) -> int:
        """Return how many programs run on an interface before all filters; 0 before Linux 6.6."""
        attributes = _buffer(bpf.query_tcx(index, is_egress=is_egress))
        try:
            self._do(bpf.PROG_QUERY, attributes)
        except OSError as error:
            if error.errno == errno.EINVAL:
                return 0
            raise
        return bpf.parse_query(attributes.raw)


def _buffer(data: bytes) -> ctypes.Array[ctypes.c_char]:
    return ctypes.create_string_buffer(data, len(data))

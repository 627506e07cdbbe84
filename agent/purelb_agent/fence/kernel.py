# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The fence in the kernel: its maps, its programs, and the hooks that these are attached to.

All of it stays in the kernel when the process ends, and works on until its last moment: the hooks
hold the programs, and these the maps. Another process cannot open them; it attaches its own.
"""

from __future__ import annotations

import asyncio
import errno
import mmap
import os
import socket
import sys
from collections.abc import Callable, Iterable
from functools import partial

from purelb.core.fence import bpf, filters
from purelb.core.fence.filters import Filter
from purelb.core.fence.hooks import Hook
from purelb.core.fence.programs import VALUE_BYTES, FenceProgram, Maps, code_of, key_of
from purelb.core.model import Address
from purelb_agent.fence.control import Control
from purelb_agent.fence.moment import shared_moment
from purelb_agent.fence.syscalls import Bpf
from purelb_agent.runtime.netlink import NetlinkError, Requests, open_socket

_BUFFER = 1 << 16
# What a removal fails with if there is no such filter, no clsact, or no interface.
_ALREADY_GONE = {errno.ENOENT, errno.EINVAL, errno.ENODEV}


class FenceKernel:
    """One fence: shut from the start, and attached nowhere."""

    def __init__(
        self,
        moment: Callable[[], memoryview] = shared_moment,
        *,
        open_socket: Callable[[int], socket.socket] = open_socket,
    ) -> None:
        """OSError if the kernel has no such programs, or forbids them.

        `moment` returns what the next agent reads; see Control.
        """
        self._opened: list[int] = []
        try:
            self._bpf = Bpf()
            self._vips = self._keep(self._bpf.create_map(bpf.vips_map()))
            maps = Maps(self._keep(self._bpf.create_map(bpf.control_map())), self._vips)
            self._page = mmap.mmap(maps.control, mmap.PAGESIZE)
            self._programs = {
                program: self._keep(self._bpf.load(program, code_of(program, maps)))
                for program in FenceProgram
            }
        except OSError:
            self._close_files()
            raise
        self.control = Control(memoryview(self._page), moment())
        self._requests = Requests(open_socket)
        self._news = open_socket(filters.RTMGRP_TC)
        self._news.setblocking(False)

    def _keep(self, opened: int) -> int:
        self._opened.append(opened)
        return opened

    def _close_files(self) -> None:
        for opened in self._opened:
            os.close(opened)

    def close(self) -> None:
        """Close what this process has open; what is attached stays."""
        asyncio.get_running_loop().remove_reader(self._news)
        self._news.close()
        self._requests.close()
        self.control.close()
        self._page.close()
        self._close_files()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """Call back from the event loop after each change of filters, also by this process."""

        def read() -> None:
            try:
                while self._news.recv(_BUFFER):
                    pass
            except BlockingIOError:
                pass
            except OSError:  # ENOBUFS: changes were lost
                pass
            callback()

        asyncio.get_running_loop().add_reader(self._news, read)

    def guard(self, address: Address, value: int) -> None:
        """Guard an address; for the value see core/fence/programs."""
        packed = value.to_bytes(VALUE_BYTES, sys.byteorder)
        self._bpf.update(self._vips, key_of(address), packed)

    def discard(self, address: Address) -> None:
        """Guard an address no more."""
        self._bpf.delete(self._vips, key_of(address))

    def prepare(self, links: Iterable[int]) -> frozenset[int]:
        """Let these interfaces have filters; returns those that have the qdisc for it now."""
        for index in links:
            try:
                self._requests.send(partial(filters.build_clsact, index))
            except NetlinkError as error:
                if error.errno not in {errno.EEXIST, errno.ENODEV}:
                    raise
        dump = self._requests.dump(filters.build_dump_qdiscs)
        found = (filters.parse_qdisc(m) for m in dump if m.kind == filters.RTM_NEWQDISC)
        return frozenset(qdisc.link for qdisc in found if qdisc.kind == "clsact")

    def attach(self, hook: Hook, program: FenceProgram, handle: int) -> None:
        """Attach a program, in place of what is there under that handle."""
        opened = self._programs[program]
        self._requests.send(lambda n: filters.build_filter(hook, opened, handle, n))

    def detach(self, hook: Hook, handle: int) -> None:
        """Detach what is there under a handle."""
        try:
            self._requests.send(lambda n: filters.build_remove_filter(hook, handle, n))
        except NetlinkError as error:
            if error.errno not in _ALREADY_GONE:
                raise

    def filters(self, hook: Hook) -> tuple[Filter, ...]:
        """Return what is attached to a hook, in the order in which it runs."""
        dump = self._requests.dump(lambda n: filters.build_dump_filters(hook, n))
        found = (filters.parse_filter(m) for m in dump if m.kind == filters.RTM_NEWTFILTER)
        return tuple(each for each in found if each is not None)

    def count_tcx(self, hook: Hook) -> int:
        """Return how many programs run before all of these filters."""
        return self._bpf.count_tcx(hook.link, is_egress=hook.is_egress)

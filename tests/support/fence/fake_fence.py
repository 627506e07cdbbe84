# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A fence without a kernel: the methods of `purelb_agent.fence.kernel.FenceKernel`.

How to use it:

    kernel = FakeFenceKernel()
    kernel.hooks[hook]              # the filters of a hook, in the order in which they run
    kernel.hooks[hook].insert(0, OTHER)
    kernel.vips                     # the addresses of this node that are guarded
    kernel.guarded                  # and others: by address, the value
    kernel.with_ingress.add(2)      # a link whose qdisc is `ingress`
    kernel.tcx[hook] = 1
    kernel.refuse("attach", errno.EPERM)
    kernel.notify()                 # others changed filters
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable

from purelb.core.fence.filters import NAME, Filter
from purelb.core.fence.hooks import Hook
from purelb.core.fence.programs import CONTROL_BYTES, FenceProgram
from purelb.core.model import Address
from purelb_agent.fence.control import Control
from purelb_agent.runtime.netlink import NetlinkError

OTHER = Filter(1, "bpf", "cil_from_netdev", 7)


class FakeFenceKernel:
    """Keeps what is guarded and attached in memory; `programs`: which one has which id."""

    def __init__(self) -> None:
        self.memory = bytearray(CONTROL_BYTES)
        self.control = Control(self.memory)
        self.guarded: dict[Address, int] = {}
        self.hooks: dict[Hook, list[Filter]] = defaultdict(list)
        self.programs: dict[int, FenceProgram] = {}
        self.with_ingress: set[int] = set()
        self.tcx: dict[Hook, int] = {}
        self.calls: list[str] = []
        self.is_closed = False
        self.notify: Callable[[], None] = lambda: None
        self._refused: dict[str, int] = {}

    def refuse(self, method: str, code: int) -> None:
        """Raise NetlinkError with this errno whenever the method is called; 0: no more."""
        self._refused[method] = code

    def _called(self, method: str) -> None:
        self.calls.append(method)
        if self._refused.get(method):
            code = self._refused[method]
            raise NetlinkError(code, os.strerror(code))

    def close(self) -> None:
        """As `FenceKernel.close`."""
        self.is_closed = True
        self.control.close()

    def subscribe(self, callback: Callable[[], None]) -> None:
        """As `FenceKernel.subscribe`; the test notifies."""
        self.notify = callback

    def guard(self, address: Address, value: int) -> None:
        """As `FenceKernel.guard`."""
        self._called("guard")
        self.guarded[address] = value

    @property
    def vips(self) -> set[Address]:
        """The guarded addresses that this node has."""
        return {address for address, value in self.guarded.items() if value}

    def discard(self, address: Address) -> None:
        """As `FenceKernel.discard`."""
        self._called("discard")
        self.guarded.pop(address, None)

    def prepare(self, links: Iterable[int]) -> frozenset[int]:
        """As `FenceKernel.prepare`."""
        self._called("prepare")
        return frozenset(links) - self.with_ingress

    def attach(self, hook: Hook, program: FenceProgram, handle: int) -> None:
        """As `FenceKernel.attach`: the newest filter of a priority is the first."""
        self._called("attach")
        number = 100 + len(self.programs)
        self.programs[number] = program
        new, filters = Filter(handle, "bpf", NAME, number), self.hooks[hook]
        at = next((i for i, found in enumerate(filters) if found.handle == handle), None)
        if at is None:
            filters.insert(0, new)
        else:
            filters[at] = new

    def detach(self, hook: Hook, handle: int) -> None:
        """As `FenceKernel.detach`."""
        self._called("detach")
        self.hooks[hook] = [found for found in self.hooks[hook] if found.handle != handle]

    def filters(self, hook: Hook) -> tuple[Filter, ...]:
        """As `FenceKernel.filters`."""
        return tuple(self.hooks[hook])

    def count_tcx(self, hook: Hook) -> int:
        """As `FenceKernel.count_tcx`."""
        return self.tcx.get(hook, 0)

    @property
    def attached(self) -> dict[Hook, FenceProgram]:
        """Our programs that run first."""
        first = ((hook, filters[0]) for hook, filters in self.hooks.items() if filters)
        return {hook: self.programs[found.program] for hook, found in first if found.is_ours}

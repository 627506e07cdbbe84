# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The fence in a node's kernel: what is attached to its interfaces, and what that drops now.

What the programs do with each frame is tested where they are made (core/fence); here is what comes
of it for an address: whether it answers, and whether a claim to it gets out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from purelb.core.fence.filters import NAME, Filter
from purelb.core.fence.hooks import Hook
from purelb.core.fence.programs import (
    ANYWHERE,
    CONTROL_BYTES,
    DEADLINE,
    ELSEWHERE,
    UNTIL,
    FenceProgram,
)
from purelb.core.model import Address
from purelb_agent.fence.control import Control
from purelb_agent.fence.moment import MOMENT_BYTES
from simulation.node.netlink import take_time
from simulation.time.machine import Clock, Machine
from simulation.time.process import Process
from simulation.time.timeline import Action
from simulation.time.timers import Timers

if TYPE_CHECKING:
    from simulation.node.kernel import Kernel

# Kinds of requests at which a process may be stopped: after one about an address or a hook, and
# before it writes the end of its right.
GUARDS, OPENS = -1, -2
_NANOSECONDS, _MICROSECOND = 1e9, 1e-6
_V6 = 6


class Fence:
    """What is attached to the hooks of a machine, by any process; it outlives them all.

    `hooks`: the filters of each, in the order in which they run. `changed` is called with each
    address that may have fallen silent, or not be silent any more. `is_forbidden`: the kernel
    refuses programs. `moment`: the file of the agent's Pod; see agent/purelb_agent/fence/moment.
    """

    def __init__(self) -> None:
        self.hooks: dict[Hook, list[Filter]] = defaultdict(list)
        self.changed: Callable[[Address], None] = lambda _address: None
        self.is_forbidden = False
        self.moment = bytearray(MOMENT_BYTES)
        self._count = 0
        self._programs: dict[int, tuple[FenceProgram, ModelFence]] = {}
        self._subscribers: list[tuple[Process, Action]] = []

    @property
    def guarded(self) -> frozenset[Hook]:
        """The hooks with filters."""
        return frozenset(hook for hook, filters in self.hooks.items() if filters)

    def drops(self, link: int, address: Address) -> bool:
        """Whether frames of an address are dropped on an interface, in one direction at least."""
        hooks = (Hook(link, is_egress=True), Hook(link, is_egress=False))
        return any(self._drops(hook, address) for hook in hooks)

    def _drops(self, hook: Hook, address: Address) -> bool:
        filters = self.hooks.get(hook)
        if not filters or not filters[0].is_ours:
            return False
        program, owner = self._programs[filters[0].program]
        return owner.drops(program, hook.link, address)

    def clear(self, link: int | None = None) -> None:
        """Remove all filters: of an interface that goes, or of a machine that has no power."""
        for hook in [hook for hook in self.hooks if link in (None, hook.link)]:
            del self.hooks[hook]
        self.tell()

    def tell(self) -> None:
        """Inform all that follow the filters, or the addresses whose frames they drop."""
        for process, callback in self._subscribers:
            process.deliver(callback)
        for address in {a for _program, owner in self._programs.values() for a in owner.guarded}:
            self.changed(address)

    def subscribe(self, process: Process, callback: Action) -> None:
        """Call back in a process after each change of filters."""
        self._subscribers = [pair for pair in self._subscribers if not pair[0].is_dead]
        self._subscribers.append((process, callback))

    def load(self, program: FenceProgram, owner: ModelFence) -> int:
        """Return the number of a program that is attached to a hook now."""
        attached = {found.program for filters in self.hooks.values() for found in filters}
        self._programs = {n: kept for n, kept in self._programs.items() if n in attached}
        self._count += 1
        self._programs[self._count] = (program, owner)
        return self._count


class _ModelControl(Control):
    """The control map; `changed` is called whenever one of its moments has passed or moved."""

    def __init__(self, machine: Machine, process: Process, kernel: Kernel, changed: Action) -> None:
        super().__init__(bytearray(CONTROL_BYTES), kernel.fence.moment)
        self._process, self._kernel, self._changed = process, kernel, changed
        self._boot = _Moment(machine, machine.boot, lambda: self._words[DEADLINE // 8], changed)
        self._awake = _Moment(machine, machine.monotonic, lambda: self._words[UNTIL // 8], changed)

    def store(self, moment: float | None) -> None:
        take_time(self._kernel, self._process, OPENS)
        was_shut = self.is_shut
        super().store(moment)
        if was_shut or self.is_shut:
            self._changed()
        self._boot.watch()

    def stand_until(self, moment: float) -> None:
        super().stand_until(moment)
        self._awake.watch()

    @property
    def is_shut(self) -> bool:
        return self._boot.has_passed

    @property
    def is_over(self) -> bool:
        return self._awake.has_passed


class _Moment:
    """A moment on a clock that moves now and then, mostly away."""

    def __init__(
        self, machine: Machine, clock: Clock, read: Callable[[], int], passed: Action
    ) -> None:
        self._clock, self._read, self._passed = clock, read, passed
        self._timers = Timers(machine.timeline, clock)
        # When it will be looked at again.
        self._looks = float("inf")

    @property
    def _left(self) -> float:
        return self._read() / _NANOSECONDS - self._clock.read()

    @property
    def has_passed(self) -> bool:
        return self._left <= _MICROSECOND

    def watch(self) -> None:
        left = self._left
        looks = self._clock.read() + left
        if left > _MICROSECOND and looks < self._looks:
            self._looks = looks
            self._timers.after(left, self._look)

    def _look(self) -> None:
        self._looks = float("inf")
        if self.has_passed:
            self._passed()
        else:
            self.watch()


class ModelFence:
    """What one process loads and attaches; see `purelb_agent.fence.kernel.FenceKernel`.

    `guarded`: by address, the value in the map.
    """

    def __init__(self, kernel: Kernel, process: Process) -> None:
        """PermissionError if the kernel forbids it."""
        if kernel.fence.is_forbidden:
            raise PermissionError(1, "this kernel lets no one load programs")
        self.guarded: dict[Address, int] = {}
        self._kernel, self._process = kernel, process
        self.control = _ModelControl(kernel.machine, process, kernel, self._changed)

    def _changed(self) -> None:
        for address in self.guarded:
            self._kernel.fence.changed(address)

    def _step(self) -> None:
        take_time(self._kernel, self._process, GUARDS)

    def drops(self, program: FenceProgram, link: int, address: Address) -> bool:
        """Whether a program of this process drops frames of an address on an interface."""
        value = self.guarded.get(address)
        if value is None or self.control.is_over:
            return False
        if program is not FenceProgram.INGRESS and value not in (ANYWHERE, link):
            return address.version != _V6
        is_here = value != ELSEWHERE and program is not FenceProgram.ARP
        return is_here and self.control.is_shut

    def subscribe(self, callback: Action) -> None:
        """As `FenceKernel.subscribe`."""
        self._kernel.fence.subscribe(self._process, callback)

    def guard(self, address: Address, value: int) -> None:
        """As `FenceKernel.guard`."""
        self.guarded[address] = value
        self._kernel.fence.changed(address)
        self._step()

    def discard(self, address: Address) -> None:
        """As `FenceKernel.discard`."""
        self.guarded.pop(address, None)
        self._kernel.fence.changed(address)
        self._step()

    def prepare(self, links: Iterable[int]) -> frozenset[int]:
        """As `FenceKernel.prepare`."""
        return frozenset(links) & self._kernel.links.keys()

    def attach(self, hook: Hook, program: FenceProgram, handle: int) -> None:
        """As `FenceKernel.attach`: the newest filter of a priority is the first."""
        fence = self._kernel.fence
        new, filters = Filter(handle, "bpf", NAME, fence.load(program, self)), fence.hooks[hook]
        at = next((i for i, found in enumerate(filters) if found.handle == handle), None)
        filters[slice(0, 0) if at is None else slice(at, at + 1)] = [new]
        fence.tell()
        self._step()

    def detach(self, hook: Hook, handle: int) -> None:
        """As `FenceKernel.detach`."""
        hooks = self._kernel.fence.hooks
        hooks[hook] = [found for found in hooks[hook] if found.handle != handle]
        self._kernel.fence.tell()
        self._step()

    def filters(self, hook: Hook) -> tuple[Filter, ...]:
        """As `FenceKernel.filters`."""
        return tuple(self._kernel.fence.hooks[hook])

    def count_tcx(self, hook: Hook) -> int:  # noqa: ARG002 - none has any
        """As `FenceKernel.count_tcx`."""
        return 0

    def close(self) -> None:
        """As `FenceKernel.close`."""

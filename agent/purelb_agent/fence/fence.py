# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Keeps the fence's programs on the node's interfaces. The reconciler owns it.

It looks again at each change of interfaces or filters, and now and then without one: a network
manager that takes the programs away may do so silently.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping

from purelb.core.fence.gaps import (
    EXACT,
    Gap,
    fence_text,
    gap_of,
    handle_for,
    is_first_alone,
)
from purelb.core.fence.hooks import Hook
from purelb.core.fence.plan import FencePlan
from purelb.core.fence.programs import FenceProgram
from purelb.core.model import Address, Link
from purelb.core.node.left import Opened
from purelb_agent.fence.control import Control, without_fence
from purelb_agent.fence.kernel import FenceKernel
from purelb_agent.fence.metrics import FenceMetrics
from purelb_agent.runtime import clock, log
from purelb_agent.runtime.netlink import NetlinkError

# What is attached is compared with what should be at least this often.
RECHECK = 30.0
# Pause between two comparisons, if another program attaches its own again and again.
_PAUSE = 1.0
_NEVER = float("-inf")


class AddressFence:
    """What is guarded where; without a kernel that can do it, nothing is.

    `problem`: why the node has none; None if it has. `gaps`: why some interfaces that need it have
    none, by name.
    """

    def __init__(
        self, open_kernel: Callable[[], FenceKernel] | None, metrics: FenceMetrics
    ) -> None:
        """Without `open_kernel` no fence is wanted."""
        self.problem: Gap | None = None
        self.gaps: dict[str, Gap] = {}
        self._metrics = metrics
        self._kernel: FenceKernel | None = None
        self._guarded: dict[Address, int] = {}
        # By hook: what was to be there when it was last compared, and the ids of ours then.
        self._wanted: Mapping[Hook, FenceProgram] = {}
        self._ids: dict[Hook, int] = {}
        self._checked_at = _NEVER
        self._is_stale = False
        self.control: Control = without_fence()
        if open_kernel is None:
            self.problem = Gap.OFF
            return
        try:
            self._kernel = open_kernel()
        except OSError as error:
            self.problem = gap_of(error.errno or 0)
            log.warning("fenceNotUsed", reason=self.problem.value, error=error)
        else:
            self.control = self._kernel.control
            metrics.drops.follow(lambda: self.control.drops)

    @property
    def is_loaded(self) -> bool:
        """Whether the kernel has the programs, so that there is something to guard with."""
        return self._kernel is not None

    @property
    def opened(self) -> Opened:
        """Whether it has been open; without a kernel that can do it, it says nothing."""
        return self.control.opened if self.is_loaded else Opened.NOT_YET

    @property
    def said(self) -> str:
        """What the Lease says of it; empty until it is known."""
        if self._kernel is not None and self._checked_at == _NEVER:
            return ""
        return fence_text(self.problem, self.gaps)

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Wake the reconciler when others changed filters."""

        def changed() -> None:
            self._is_stale = True
            wake()

        if self._kernel is not None:
            self._kernel.subscribe(changed)

    def next_at(self) -> float | None:
        """When to look again after a change; None if nothing changed."""
        return self._checked_at + _PAUSE if self._is_stale else None

    def guard(self, plan: FencePlan, links: Iterable[Link], *, now: float) -> None:
        """Guard these addresses on these interfaces, before they are put there."""
        if self._kernel is None:
            return
        self.control.stand_until(clock.monotonic() + plan.until - now)
        self._guard_addresses(self._kernel, plan.vips)
        is_due = now >= self._checked_at + (_PAUSE if self._is_stale else RECHECK)
        if plan.programs != self._wanted or is_due:
            self._compare(self._kernel, plan, {k.index: k.name for k in links}, now)
        self._metrics.show(is_active=self.said == EXACT)

    def _guard_addresses(self, kernel: FenceKernel, wanted: Mapping[Address, int]) -> None:
        try:
            for address in self._guarded.keys() - wanted.keys():
                kernel.discard(address)
            for address, value in wanted.items():
                if self._guarded.get(address) != value:
                    kernel.guard(address, value)
        except OSError as error:
            if self.problem is None:
                log.error("fenceFailed", error=error)
            self.problem = Gap.FULL
        else:
            self._guarded, self.problem = dict(wanted), None

    def _compare(
        self, kernel: FenceKernel, plan: FencePlan, names: Mapping[int, str], now: float
    ) -> None:
        is_first = self._checked_at == _NEVER
        self._checked_at, self._is_stale = now, False
        gaps = dict.fromkeys(plan.open_links, Gap.NOT_ETHERNET)
        both = [Hook(index, is_egress=egress) for index in names for egress in (False, True)]
        # At first also what an agent before this one left on other interfaces.
        for hook in both if is_first else self._wanted.keys():
            if hook not in plan.programs and hook.link in names:
                self._detach(kernel, hook, is_foreign=is_first)
        before, self._wanted = self._wanted, dict(plan.programs)
        self._ids = {
            hook: found
            for hook, found in self._ids.items()
            if plan.programs.get(hook) is before.get(hook)
        }
        able = kernel.prepare({hook.link for hook in plan.programs})
        for hook, program in plan.programs.items():
            name = names[hook.link]
            if hook.link not in able:
                gaps[name] = Gap.OTHER_QDISC
                continue
            try:
                gap = self._secure(kernel, hook, program, name)
            except OSError as error:
                if error.errno == errno.ENODEV:
                    continue
                log.error("fenceFailed", interface=name, error=error)
                gap = Gap.REFUSED
            if gap is not None:
                gaps[name] = gap
        self._show(gaps)

    def _secure(
        self, kernel: FenceKernel, hook: Hook, program: FenceProgram, name: str
    ) -> Gap | None:
        """Let a program of ours be the first one of a hook, and the only one of ours."""
        filters = kernel.filters(hook)
        if not is_first_alone(filters, self._ids.get(hook)):
            handle = handle_for(filters)
            kernel.attach(hook, program, handle)
            for found in filters:
                if found.is_ours and found.handle != handle:
                    kernel.detach(hook, found.handle)
            if hook in self._ids:
                self._metrics.count_repair()
                log.warning("fencePutBack", interface=name, program=program.value)
            filters = kernel.filters(hook)
            if not (filters and filters[0].is_ours and filters[0].handle == handle):
                return Gap.BEHIND
            self._ids[hook] = filters[0].program
        return Gap.BEHIND if kernel.count_tcx(hook) else None

    def _show(self, gaps: dict[str, Gap]) -> None:
        for name, gap in gaps.items():
            if self.gaps.get(name) is not gap:
                log.warning("fenceGap", interface=name, reason=gap.value)
        for name in self.gaps.keys() - gaps.keys():
            log.info("fenceGapClosed", interface=name)
        self.gaps = gaps

    def _detach(self, kernel: FenceKernel, hook: Hook, *, is_foreign: bool) -> None:
        """Detach our own program, with `is_foreign` also that of an agent before this one."""
        try:
            for found in kernel.filters(hook):
                if found.is_ours and (is_foreign or found.program == self._ids.get(hook)):
                    kernel.detach(hook, found.handle)
        except NetlinkError as error:
            log.error("fenceNotDetached", error=error)

    def remove(self) -> None:
        """Detach all programs; call it when the addresses are gone."""
        if self._kernel is not None:
            for hook in self._ids:
                self._detach(self._kernel, hook, is_foreign=False)

    def close(self) -> None:
        """Close what is open."""
        if self._kernel is not None:
            last = self.control.drops
            self._metrics.drops.follow(lambda: last)
            self._kernel.close()

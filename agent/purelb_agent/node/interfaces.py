# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The node's interfaces: as last read, and brought to what a plan says.

Remembers what this process put there, so that it recognises its own whatever becomes of the pools,
and so that the echo of its own changes wakes nobody. Called by the loop, and owned by it.
"""

from __future__ import annotations

from collections.abc import Callable

from purelb.core.model import InterfaceAddress, Link
from purelb.core.names import DUMMY_INTERFACE
from purelb.core.node.plan import Plan, Put, Remove
from purelb.core.node.snapshot import Place
from purelb_agent.node.metrics import AddressMetrics
from purelb_agent.node.netlink import Kernel, NetlinkError, News
from purelb_agent.runtime import log

_NEVER = float("-inf")


class Interfaces:
    """What is on the interfaces, what this process put there, and the way to change it."""

    def __init__(self, kernel: Kernel, metrics: AddressMetrics) -> None:
        self.links: tuple[Link, ...] = ()
        # What this process put on an interface and what is still there; and what it was to hold
        # after the last plan, whether it is still there or not.
        self.put: frozenset[Place] = frozenset()
        self.held: frozenset[Place] = frozenset()
        self._kernel = kernel
        self._metrics = metrics
        self._links_read_at = _NEVER
        self._seen: dict[Place, InterfaceAddress] = {}
        self._dummy_problem = ""

    def subscribe(self, wake: Callable[[], None]) -> None:
        """Wake whoever plans, but not for the echo of a lifetime that was just set anew."""

        def on_news(news: News) -> None:
            if news.address is not None and not news.is_gone:
                seen = self._seen.get((news.address.link, news.address.address))
                if seen is not None and _state(seen) == _state(news.address):
                    return
            self._links_read_at = _NEVER
            wake()

        self._kernel.subscribe(on_news)

    def read_links(self, now: float, *, max_age: float) -> None:
        """Read the links anew if something happened, or if what is known of them is too old."""
        if now - self._links_read_at >= max_age:
            self.links, self._links_read_at = self._kernel.links(), now

    def read_addresses(self) -> tuple[InterfaceAddress, ...]:
        """All addresses on all interfaces."""
        addresses = self._kernel.addresses()
        self._seen = {(held.link, held.address): held for held in addresses}
        self.put &= self._seen.keys()
        return addresses

    def dummies(self, name: str) -> frozenset[int]:
        """Indexes of the links that hold remote addresses under this name, or did."""
        names = {name, DUMMY_INTERFACE}
        return frozenset(k.index for k in self.links if k.name in names or k.is_ours)

    def make_dummy(self, name: str) -> bool:
        """Create the interface for remote addresses; a failure is logged once."""
        try:
            self._kernel.add_dummy(name)
        except NetlinkError as problem:
            if self._dummy_problem != str(problem):
                log.error("dummyNotCreated", interface=name, error=str(problem))
            self._dummy_problem = str(problem)
            return False
        log.info("dummyCreated", interface=name)
        self._dummy_problem, self._links_read_at = "", _NEVER
        return True

    def remove_dummies(self) -> None:
        """Remove the links that an agent made; called when all addresses are off them."""
        for link in self._kernel.links():
            if link.is_ours:
                self._kernel.remove_link(link)
                log.info("dummyRemoved", interface=link.name)

    def apply(self, made: Plan) -> bool:
        """Bring the kernel to the plan; whether nothing was refused."""
        removed = [self._remove(remove) for remove in made.removes]
        with self._metrics.time_renewals():
            done = [self._add(put) for put in made.puts]
        self.held = self.put & made.wanted
        self._metrics.show_held(len(self.held))
        return all(removed) and all(done)

    def _remove(self, remove: Remove) -> bool:
        held = remove.held
        try:
            self._kernel.remove(held)
        except NetlinkError as problem:
            where = self.name_of(held.link)
            log.error("withdrawFailed", ip=held.address, interface=where, error=str(problem))
            return False
        self.put -= {(held.link, held.address)}
        self._seen.pop((held.link, held.address), None)
        self._metrics.count_withdrawal()
        if held.dad_failed:
            self._metrics.count_conflict()
        why = "duplicateAddressDetected" if held.dad_failed else remove.reason.value
        log.info("withdrawAddress", ip=held.address, interface=self.name_of(held.link), reason=why)
        return True

    def _add(self, put: Put) -> bool:
        place = (put.link, put.address)
        try:
            self._kernel.put(put)
        except NetlinkError as problem:
            if not put.is_new:
                self._metrics.count_renewal_error()
            where = self.name_of(put.link)
            log.error("addFailed", ip=put.address, interface=where, error=str(problem))
            return False
        if put.is_new:
            self._metrics.count_addition()
            if place in self.held:
                self._metrics.count_recovery()
                log.warning("addressPutBack", ip=put.address, interface=self.name_of(put.link))
        else:
            self._metrics.count_renewal()
        self.put |= {place}
        return True

    def name_of(self, index: int) -> str:
        """Name of a link as last read; its number if it is not known."""
        return next((link.name for link in self.links if link.index == index), str(index))

    def usable(self, fresh: set[Place]) -> frozenset[Place]:
        """Addresses that hosts of the segment may use now; `fresh` ones were just added."""
        return frozenset(p for p in self.held if p in fresh or self._is_usable(p))

    def _is_usable(self, place: Place) -> bool:
        seen = self._seen.get(place)
        return seen is not None and not seen.tentative and not seen.dad_failed


def _state(held: InterfaceAddress) -> tuple[int, bool, bool, bool]:
    return held.prefixlen, held.tentative, held.dad_failed, held.deprecated

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Reads the node's interfaces and applies plans to them.

Remembers the addresses that this process added: it recognises them even on a kernel without marks,
and the kernel's notifications of its own changes wake no task. The reconciler owns it.
"""

from __future__ import annotations

from collections.abc import Callable

from purelb.core.model import InterfaceAddress, Link, Reason
from purelb.core.names import DUMMY_INTERFACE
from purelb.core.node.carriers import Carriers
from purelb.core.node.left import Place
from purelb.core.node.plan import Plan, Put, Remove
from purelb.core.node.snapshot import shows_marks
from purelb_agent.node.metrics import AddressMetrics
from purelb_agent.node.netlink import Kernel, News
from purelb_agent.runtime import clock, log
from purelb_agent.runtime.netlink import NetlinkError, NoAnswerError

_NEVER = float("-inf")


class Interfaces:
    """The links and addresses as last read, and which addresses this process added."""

    def __init__(self, kernel: Kernel, metrics: AddressMetrics) -> None:
        self.links: tuple[Link, ...] = ()
        # Whether one of them counts as without a carrier since the last read.
        self.is_cut_off = False
        # The addresses that this process added and that were present at the last read.
        self.put: frozenset[Place] = frozenset()
        # Those of them that the last plan wanted, even if they have been removed since.
        self.held: frozenset[Place] = frozenset()
        # Whether the kernel has shown that it keeps the mark of an address.
        self.keeps_marks = False
        self._kernel = kernel
        self._metrics = metrics
        self._links_read_at = _NEVER
        self._read: tuple[Link, ...] = ()
        self._carriers = Carriers()
        # Links that had no carrier, or got another MAC address, since that was asked for.
        self._disturbed: set[int] = set()
        self._seen: dict[Place, InterfaceAddress] = {}
        # What was last sent for each place, unless the kernel refused it.
        self._sent: dict[Place, Put] = {}
        # Places with a request that was not answered: the next read shows its result.
        self._unsure: set[Place] = set()
        self._dummy_error = ""

    def subscribe(self, wake: Callable[[], None], resumed: Callable[[], None]) -> None:
        """Wake the planner unless the change is our own reset of a lifetime.

        `resumed` is called after a sleep of the machine.
        """

        def on_news(news: News) -> None:
            if news.is_resume:
                resumed()
            if news.link is not None:
                self._disturb(news.link)
            if news.address is not None and not news.is_gone:
                seen = self._seen.get((news.address.link, news.address.address))
                if seen is not None and _state(seen) == _state(news.address):
                    return
            self._links_read_at = _NEVER
            wake()

        self._kernel.subscribe(on_news)

    def read_links(self, now: float, *, max_age: float) -> None:
        """Read the links if something changed, or if the last read is `max_age` seconds old."""
        if now - self._links_read_at >= max_age:
            read = self._kernel.links()
            for link in read:
                self._disturb(link)
            self._read, self._links_read_at = read, now
            self._carriers = self._carriers.seen(self._read, now=now)
        before = {link.index for link in self.links if link.has_carrier}
        self.links = self._carriers.kept(self._read, now=now)
        self.is_cut_off = any(link.index in before and not link.has_carrier for link in self.links)

    def _disturb(self, link: Link) -> None:
        """Note a link on which no frame got through for a moment, or that has another MAC."""
        if not link.has_carrier or any(
            link.index == known.index and link.mac != known.mac for known in self._read
        ):
            self._disturbed.add(link.index)

    def take_restored(self) -> frozenset[int]:
        """Return, once, the links that work again, on which hosts may have missed something."""
        working = {link.index for link in self._read if link.has_carrier}
        restored = frozenset(self._disturbed & working)
        self._disturbed &= {link.index for link in self._read} - working
        return restored

    def changes_at(self, now: float) -> float | None:
        """When the links change although nothing is heard of them; None if they do not."""
        return self._carriers.next_at(now)

    def read_addresses(self) -> tuple[InterfaceAddress, ...]:
        """Return all addresses on all interfaces."""
        addresses = self._kernel.addresses()
        self._seen = {(held.link, held.address): held for held in addresses}
        self.put = (self.put | self._unsure) & self._seen.keys()
        self._unsure.clear()
        self._sent = {place: self._sent[place] for place in self.put}
        self.keeps_marks = self.keeps_marks or shows_marks(addresses)
        return addresses

    @property
    def present(self) -> tuple[InterfaceAddress, ...]:
        """The addresses that were there at the last read and have not been removed since."""
        return tuple(self._seen.values())

    def dummies(self, name: str) -> frozenset[int]:
        """Return the indexes of the links for remote addresses: of this name or a former one."""
        names = {name, DUMMY_INTERFACE}
        return frozenset(link.index for link in self.links if link.name in names or link.is_ours)

    def make_dummy(self, name: str) -> bool:
        """Create the interface for remote addresses; returns False, logged once, on failure."""
        try:
            self._kernel.add_dummy(name)
        except NetlinkError as error:
            if self._dummy_error != str(error):
                log.error("dummyNotCreated", interface=name, error=str(error))
            self._dummy_error = str(error)
            return False
        log.info("dummyCreated", interface=name)
        self._dummy_error, self._links_read_at = "", _NEVER
        return True

    def remove_dummies(self) -> None:
        """Remove the links that an agent created; call it when they have no addresses left."""
        for link in self._kernel.links():
            if link.is_ours:
                self._kernel.remove_link(link)
                log.info("dummyRemoved", interface=link.name)

    def apply(self, planned: Plan) -> bool:
        """Carry out a plan, as far as the kernel lets it; returns False if it refused a change."""
        removed = [self._remove(remove) for remove in planned.removes]
        # What was there until now is not put back for another program's sake.
        self.held -= {(r.held.link, r.held.address) for r in planned.removes}
        with self._metrics.time_renewals():
            added = [self._put(put) for put in planned.puts]
        self.held = self.put & planned.wanted
        self._metrics.show_held(len(self.held))
        return all(removed) and all(added)

    def withdraw_put(self, reason: Reason, *, only_expiring: bool = False) -> None:
        """Remove what this process has added, without a read of what is there.

        `only_expiring`: addresses without a lifetime stay; they do not depend on the Lease.
        """
        for place in self.put | self._unsure:
            put = self._sent[place]
            if put.valid_lft is not None or not only_expiring:
                held = InterfaceAddress(put.link, put.address, put.prefixlen)
                self._remove(Remove(held, reason))
        self.held &= self.put
        self._metrics.show_held(len(self.held))

    def _remove(self, remove: Remove) -> bool:
        held = remove.held
        try:
            self._kernel.remove(held)
        except NetlinkError as error:
            where = self.name_of(held.link)
            log.error("withdrawFailed", ip=held.address, interface=where, error=str(error))
            return False
        self.put -= {(held.link, held.address)}
        self._seen.pop((held.link, held.address), None)
        self._metrics.count_withdrawal()
        if held.dad_failed:
            self._metrics.count_conflict()
        why = "duplicateAddressDetected" if held.dad_failed else remove.reason.value
        log.info("withdrawAddress", ip=held.address, interface=self.name_of(held.link), reason=why)
        return True

    def _put(self, put: Put) -> bool:
        place = (put.link, put.address)
        sent = put.sent_at(clock.now())
        if sent is None:
            log.warning("addTooLate", ip=put.address, interface=self.name_of(put.link))
            return False
        try:
            self._kernel.put(sent)
        except NetlinkError as error:
            if isinstance(error, NoAnswerError):
                self._sent[place] = sent
                self._unsure.add(place)
            if not put.is_new:
                self._metrics.count_renewal_error()
            where = self.name_of(put.link)
            log.error("addFailed", ip=put.address, interface=where, error=str(error))
            return False
        if put.is_new:
            self._metrics.count_addition()
            if place in self.held:
                self._metrics.count_recovery()
                log.warning("addressPutBack", ip=put.address, interface=self.name_of(put.link))
        else:
            self._metrics.count_renewal()
        self._sent[place] = sent
        self.put |= {place}
        return True

    def name_of(self, index: int) -> str:
        """Return the name of a link as last read, or its index if there is no such link."""
        return next((link.name for link in self.links if link.index == index), str(index))

    def usable(self, fresh: set[Place]) -> frozenset[Place]:
        """Return the held addresses that other hosts can use now; `fresh` ones were just added.

        By now: what was added before the process was stopped may have ended.
        """
        now = clock.now()
        lasting = (place for place in self.held if self._sent[place].may_last(now))
        return frozenset(place for place in lasting if place in fresh or self._is_usable(place))

    def _is_usable(self, place: Place) -> bool:
        seen = self._seen.get(place)
        return seen is not None and not seen.tentative and not seen.dad_failed


def _state(held: InterfaceAddress) -> tuple[int, bool, bool, bool, int]:
    """Return all of an address but its lifetimes."""
    return held.prefixlen, held.tentative, held.dad_failed, held.deprecated, held.protocol

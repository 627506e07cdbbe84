# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The kernel of a node: interfaces, addresses with lifetimes, and who is told of changes.

Lifetimes are whole seconds of the machine's monotonic clock; what is left is reported rounded up.
An address whose lifetime has ended is removed up to a second later, as measured on Linux.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Iterator
from math import ceil, inf

from purelb.core.model import Address
from purelb.core.node import rtnetlink
from purelb.core.node.rtnetlink import (
    IFA_F_DEPRECATED,
    IFA_F_NODAD,
    IFA_F_PERMANENT,
    IFA_F_SECONDARY,
    IFA_F_TENTATIVE,
    NLM_F_EXCL,
    RTMGRP_IPV4_IFADDR,
    RTMGRP_IPV4_ROUTE,
    RTMGRP_IPV6_IFADDR,
    RTMGRP_IPV6_ROUTE,
    RTMGRP_LINK,
    Message,
)
from simulation.chance import stream
from simulation.node import messages
from simulation.node.addresses import HeldAddress, Place, of_subnet, ordered
from simulation.node.fence import Fence, ModelFence
from simulation.node.messages import LinkState, Route
from simulation.node.netlink import KernelSocket, Stop
from simulation.time.machine import Machine
from simulation.time.process import Process
from simulation.time.timers import Timers

_V6 = 6
# Whether another host has an address, as duplicate address detection would find.
IsTaken = Callable[[LinkState, Address], bool]


class Kernel:
    """The interfaces and addresses of a machine; `held` are the addresses by their places.

    `changed` is called with each place whose address came, went or became usable, or whose
    interface changed. Of `late_answers` requests the answer comes too late; `is_unreadable`: all
    dumps fail. Of `lost_news` changes the sockets for news have no room. Of `interrupted_dumps` of
    addresses each lacks one: `dumps_lack`, or if that is None the one that chance decides. `stop`:
    when the process that sends requests is stopped in the middle of its work. `busy`: for how many
    seconds it waits for each answer. `taken_along`: what went with addresses that programs removed.
    `fence`: what drops the frames of some of them.
    """

    def __init__(self, machine: Machine, chance: random.Random) -> None:
        self.machine = machine
        self.links: dict[int, LinkState] = {}
        self.held: dict[Place, HeldAddress] = {}
        self.routes: list[Route] = []
        self.is_taken: IsTaken = lambda _link, _address: False
        self.changed: Callable[[Place], None] = lambda _place: None
        self.late_answers = 0
        self.is_unreadable = False
        self.lost_news = 0
        self.interrupted_dumps = 0
        self.dumps_lack: Address | None = None
        self.stop: Stop | None = None
        self.busy = 0.0
        self.taken_along: list[Address] = []
        self._chance = chance
        # Of its own, so that an interrupted dump leaves all else as it was.
        self._interrupts = stream(chance.getrandbits(64), "interrupts")
        self.fence = Fence()
        self.fence.changed = self._fence_changed
        self._timers = Timers(machine.timeline, machine.monotonic)
        self._sockets: list[KernelSocket] = []
        # When the address of a place will be looked at next, as its lifetime may have ended.
        self._ends: dict[Place, float] = {}

    def open_socket(self, process: Process, groups: int) -> KernelSocket:
        """Return a socket; see `purelb_agent.node.netlink.open_socket`."""
        opened = KernelSocket(self, process, groups)
        if groups:
            self._sockets.append(opened)
        return opened

    def open_fence(self, process: Process) -> ModelFence:
        """Return a fence of a process; PermissionError if this kernel lets no one load programs."""
        return ModelFence(self, process)

    def forget(self, closed: KernelSocket) -> None:
        """Send a socket nothing any more."""
        if closed in self._sockets:
            self._sockets.remove(closed)

    # By hand

    def add_link(self, link: LinkState) -> None:
        """Add or change an interface."""
        self.links[link.index] = link
        self._tell(RTMGRP_LINK, messages.message(rtnetlink.RTM_NEWLINK, messages.link_body(link)))
        for place in [place for place in self.held if place[0] == link.index]:
            self.changed(place)

    def add_route(self, route: Route) -> None:
        """Add a default route."""
        self.routes.append(route)
        group = RTMGRP_IPV6_ROUTE if route.gateway.version == _V6 else RTMGRP_IPV4_ROUTE
        body = messages.route_body(route)
        self._tell(group, messages.message(rtnetlink.RTM_NEWROUTE, body))

    def add_address(self, link: int, address: Address, prefixlen: int) -> None:
        """Add an address for ever, usable at once."""
        head = messages.address_head(link, address, prefixlen, 0)
        flags = IFA_F_PERMANENT | IFA_F_NODAD
        self._put(HeldAddress((link, address), prefixlen, head, flags, None, None))

    def deprecate(self, place: Place) -> None:
        """End the preferred lifetime of an address."""
        held = self.held[place]
        held.flags |= IFA_F_DEPRECATED
        held.preferred_until = self.machine.monotonic.read()
        self._tell_address(held, rtnetlink.RTM_NEWADDR)

    def remove_address(self, place: Place) -> list[Address]:
        """Remove an address, and what goes with it, which it returns."""
        held = self.held.pop(place)
        others = [] if held.is_secondary else of_subnet(self.held, held)
        gone = [] if self.links[place[0]].promotes else others
        for other in gone:
            self.remove_address(other.place)
        self._tell_address(held, rtnetlink.RTM_DELADDR)
        self.changed(place)
        for promoted in others[:1] if not gone else ():
            # It becomes the last primary.
            self.held[promoted.place] = self.held.pop(promoted.place)
            promoted.flags &= ~IFA_F_SECONDARY
            self._tell_address(promoted, rtnetlink.RTM_NEWADDR)
        return [other.place[1] for other in gone]

    def lose_power(self) -> None:
        """Forget all addresses and sockets at once: the machine is off."""
        self._sockets.clear()
        self.fence.clear()
        places, self.held = list(self.held), {}
        for place in places:
            self.changed(place)

    def answers_on(self, place: Place) -> bool:
        """Whether an address is on an interface that has a carrier, and not dropped there."""
        return (
            place in self.held and self.links[place[0]].has_carrier and not self.fence.drops(*place)
        )

    def _fence_changed(self, address: Address) -> None:
        for place in [(link, address) for link in self.links if (link, address) in self.held]:
            self.changed(place)

    def usable(self, address: Address) -> LinkState | None:
        """Return the interface on which this kernel answers for an address now."""
        if not self.machine.runs:
            return None
        for link, held in self.held.items():
            if link[1] == address and not held.flags & IFA_F_TENTATIVE:
                return None if self.fence.drops(*link) else self.links[link[0]]
        return None

    # Requests

    def answer(self, request: Message) -> bytes:
        """Carry out a request and return the datagram of its reply."""
        sequence = request.sequence
        if request.flags & rtnetlink.NLM_F_DUMP == rtnetlink.NLM_F_DUMP and request.kind in _DUMPS:
            if self.is_unreadable:
                return messages.acknowledgement(sequence, errno.ENOBUFS)
            return self._dump(request)
        error = _REQUESTS[request.kind](self, request)
        answer = messages.acknowledgement(sequence, error)
        if request.kind != rtnetlink.RTM_GETLINK or error:
            return answer
        body = messages.link_body(self.links[messages.wanted_link(request).number])
        return messages.message(rtnetlink.RTM_NEWLINK, body, sequence=sequence) + answer

    def _dump(self, request: Message) -> bytes:
        kind, bodies = _DUMPS[request.kind]
        found, flags = list(bodies(self)), 0
        if request.kind == rtnetlink.RTM_GETADDR and self.interrupted_dumps:
            self.interrupted_dumps -= 1
            flags = rtnetlink.NLM_F_DUMP_INTR
            del found[self._lacking(len(found))]
        sequence = request.sequence
        sent = [messages.message(kind, body, sequence=sequence, flags=flags) for body in found]
        return b"".join((*sent, messages.done(sequence, flags=flags)))

    def _lacking(self, count: int) -> int:
        """Return which address an interrupted dump lacks."""
        if self.dumps_lack is None:
            return self._interrupts.randrange(count)
        return [held.place[1] for held in ordered(self.held)].index(self.dumps_lack)

    def _addresses(self) -> Iterator[bytes]:
        return map(self._body, ordered(self.held))

    def _links(self) -> Iterator[bytes]:
        return map(messages.link_body, self.links.values())

    def _routes(self) -> Iterator[bytes]:
        return map(messages.route_body, self.routes)

    def _new_address(self, request: Message) -> int:
        wanted = messages.wanted_address(request)
        place = (wanted.link, wanted.address)
        if wanted.link not in self.links:
            return errno.ENODEV
        before = self.held.get(place)
        if before is not None and request.flags & NLM_F_EXCL:
            return errno.EEXIST
        now = self.machine.monotonic.read()
        flags = wanted.flags & ~IFA_F_DEPRECATED
        # A mask stays, and the mark is that of the last request.
        prefixlen = wanted.prefixlen if before is None else before.prefixlen
        head = messages.address_head(wanted.link, wanted.address, prefixlen, wanted.protocol)
        if before is None:
            if wanted.address.version == _V6 and not flags & IFA_F_NODAD:
                flags |= IFA_F_TENTATIVE
        else:
            flags |= before.flags & (IFA_F_TENTATIVE | IFA_F_SECONDARY)
        if wanted.valid_lft is None:
            flags |= IFA_F_PERMANENT
        if wanted.preferred_lft == 0:
            flags |= IFA_F_DEPRECATED
        valid, preferred = wanted.valid_lft, wanted.preferred_lft
        self._put(
            HeldAddress(
                place,
                prefixlen,
                head,
                flags,
                None if valid is None else now + valid,
                None if preferred is None else now + preferred,
                self._chance.random(),
            )
        )
        return 0

    def _remove_address(self, request: Message) -> int:
        wanted = messages.wanted_address(request)
        if (wanted.link, wanted.address) not in self.held:
            return errno.EADDRNOTAVAIL
        self.taken_along += self.remove_address((wanted.link, wanted.address))
        return 0

    def _new_link(self, request: Message) -> int:
        wanted = messages.wanted_link(request)
        known = next((k for k in self.links.values() if k.name == wanted.name), None)
        if not wanted.kind:
            if known is None:
                return errno.ENODEV
            known.alias = wanted.alias
            self.add_link(known)
            return 0
        if known is not None:
            return errno.EEXIST
        index = max(self.links, default=0) + 1
        mac = b"\x0e\0\0\0\0" + bytes([index])
        self.add_link(LinkState(index, wanted.name, mac, is_dummy=True))
        return 0

    def _set_link(self, request: Message) -> int:
        wanted = messages.wanted_link(request)
        if wanted.number not in self.links:
            return errno.ENODEV
        if wanted.promotes is not None:
            self.links[wanted.number].promotes = wanted.promotes
        return 0

    def _get_link(self, request: Message) -> int:
        return 0 if messages.wanted_link(request).number in self.links else errno.ENODEV

    def _remove_link(self, request: Message) -> int:
        index = messages.wanted_link(request).number
        if index not in self.links:
            return errno.ENODEV
        for place in [place for place in self.held if place[0] == index]:
            self.remove_address(place)
        self.fence.clear(index)
        body = messages.link_body(self.links.pop(index))
        self._tell(RTMGRP_LINK, messages.message(rtnetlink.RTM_DELLINK, body))
        return 0

    # Time

    def _put(self, held: HeldAddress) -> None:
        before = self.held.get(held.place)
        if before is None and of_subnet(self.held, held):
            held.flags |= IFA_F_SECONDARY
        self.held[held.place] = held
        self._tell_address(held, rtnetlink.RTM_NEWADDR)
        if before is None:
            if held.flags & IFA_F_TENTATIVE:
                seconds = 1.0 + self._chance.random()
                self._timers.after(seconds, lambda: self._end_detection(held.place))
            self.changed(held.place)
        self._watch_end(held)
        if held.preferred_until is not None and not held.flags & IFA_F_DEPRECATED:
            self._watch_preferred(held)

    def _watch_end(self, held: HeldAddress) -> None:
        """Make an appointment with the end of a lifetime, unless there is an earlier one."""
        if held.valid_until is None:
            return
        end = held.valid_until + held.late
        if end < self._ends.get(held.place, inf):
            self._ends[held.place] = end
            left = end - self.machine.monotonic.read()
            self._timers.after(left, lambda: self._end_lifetime(held.place))

    def _end_lifetime(self, place: Place) -> None:
        self._ends.pop(place, None)
        held = self.held.get(place)
        if held is None or held.valid_until is None:
            return
        if held.valid_until + held.late <= self.machine.monotonic.read() + 1e-9:
            self.remove_address(place)
        else:
            self._watch_end(held)

    def _watch_preferred(self, held: HeldAddress) -> None:
        if held.preferred_until is None or held.preferred_until == held.valid_until:
            return
        left = held.preferred_until - self.machine.monotonic.read()
        self._timers.after(left, lambda: self._deprecate(held))

    def _deprecate(self, held: HeldAddress) -> None:
        if self.held.get(held.place) is held:
            self.deprecate(held.place)

    def _end_detection(self, place: Place) -> None:
        held = self.held.get(place)
        if held is None or not held.flags & IFA_F_TENTATIVE:
            return
        held.flags &= ~IFA_F_TENTATIVE
        if self.is_taken(self.links[place[0]], place[1]):
            # With a lifetime it is removed; only a permanent one stays and is marked.
            self.remove_address(place)
            return
        self._tell_address(held, rtnetlink.RTM_NEWADDR)
        self.changed(place)

    # News

    def _body(self, held: HeldAddress) -> bytes:
        now = self.machine.monotonic.read()
        until, preferred = held.valid_until, held.preferred_until
        return messages.address_body(
            held.head,
            None if until is None else max(0, ceil(until - now - 1e-6)),
            None if preferred is None else max(0, ceil(preferred - now - 1e-6)),
            held.flags,
        )

    def _tell_address(self, held: HeldAddress, kind: int) -> None:
        is_v6 = held.place[1].version == _V6
        group = RTMGRP_IPV6_IFADDR if is_v6 else RTMGRP_IPV4_IFADDR
        self._tell(group, messages.message(kind, self._body(held)))

    def _tell(self, group: int, data: bytes) -> None:
        is_lost = self.lost_news > 0
        self.lost_news -= is_lost
        for receiver in self._sockets:
            if receiver.groups & group:
                receiver.put(None if is_lost else data)


_DUMPS = {
    rtnetlink.RTM_GETADDR: (rtnetlink.RTM_NEWADDR, Kernel._addresses),  # noqa: SLF001 - its own
    rtnetlink.RTM_GETLINK: (rtnetlink.RTM_NEWLINK, Kernel._links),  # noqa: SLF001 - its own
    rtnetlink.RTM_GETROUTE: (rtnetlink.RTM_NEWROUTE, Kernel._routes),  # noqa: SLF001 - its own
}
_REQUESTS = {
    rtnetlink.RTM_NEWADDR: Kernel._new_address,  # noqa: SLF001 - its own
    rtnetlink.RTM_DELADDR: Kernel._remove_address,  # noqa: SLF001 - its own
    rtnetlink.RTM_NEWLINK: Kernel._new_link,  # noqa: SLF001 - its own
    rtnetlink.RTM_DELLINK: Kernel._remove_link,  # noqa: SLF001 - its own
    rtnetlink.RTM_SETLINK: Kernel._set_link,  # noqa: SLF001 - its own
    rtnetlink.RTM_GETLINK: Kernel._get_link,  # noqa: SLF001 - its own
}

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Interfaces without a kernel: the methods of `purelb_agent.node.netlink.Kernel`.

How to use it:

    kernel = FakeKernel(Link(2, "eth0"))
    kernel.refuse("put", errno.ENODEV)   # until kernel.allow("put")
    kernel.notify(News())                # to the subscriber
    kernel.held                          # (link index, address) -> InterfaceAddress
    kernel.calls                         # the names of all calls, in order
    kernel.keeps_marks = False           # as a kernel before 5.18
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable

from purelb.core.model import Address, InterfaceAddress, Link
from purelb.core.names import LINK_ALIAS
from purelb.core.node.plan import Put
from purelb_agent.node.netlink import News
from purelb_agent.runtime import clock
from purelb_agent.runtime.netlink import NetlinkError


class FakeKernel:
    """Keeps links and addresses in memory; never notifies of its own accord."""

    def __init__(self, *links: Link) -> None:
        self.present = {link.index: link for link in links}
        self.held: dict[tuple[int, Address], InterfaceAddress] = {}
        self.calls: list[str] = []
        self.keeps_marks = True
        self.notify: Callable[[News], None] = lambda _news: None
        self._refused: dict[str, int] = {}

    def refuse(self, method: str, code: int) -> None:
        """Raise NetlinkError with this errno whenever the method is called."""
        self._refused[method] = code

    def allow(self, method: str) -> None:
        """Let the method succeed again."""
        del self._refused[method]

    def _called(self, method: str) -> None:
        self.calls.append(method)
        if method in self._refused:
            code = self._refused[method]
            raise NetlinkError(code, os.strerror(code))

    def hold(self, *addresses: InterfaceAddress) -> None:
        """Add these addresses to their interfaces."""
        self.held |= {(held.link, held.address): held for held in addresses}

    def subscribe(self, callback: Callable[[News], None]) -> None:
        """As `Kernel.subscribe`; the test notifies."""
        self.notify = callback

    def addresses(self) -> tuple[InterfaceAddress, ...]:
        """As `Kernel.addresses`."""
        self._called("addresses")
        return tuple(self.held.values())

    def links(self) -> tuple[Link, ...]:
        """As `Kernel.links`."""
        self._called("links")
        return tuple(self.present.values())

    def put(self, put: Put) -> None:
        """As `Kernel.put`."""
        self._called("put")
        if put.is_new and (put.link, put.address) in self.held:
            raise NetlinkError(errno.EEXIST, os.strerror(errno.EEXIST))
        now = clock.now()
        self.held[put.link, put.address] = InterfaceAddress(
            put.link,
            put.address,
            put.prefixlen,
            None if put.valid_lft is None else now + put.valid_lft,
            None if put.preferred_lft is None else now + put.preferred_lft,
            no_prefix_route=put.no_prefix_route,
            tentative=not put.usable_at_once,
            deprecated=put.preferred_lft == 0,
            protocol=put.protocol if self.keeps_marks else 0,
        )

    def remove(self, held: InterfaceAddress) -> None:
        """As `Kernel.remove`."""
        self._called("remove")
        self.held.pop((held.link, held.address), None)

    def add_dummy(self, name: str) -> None:
        """As `Kernel.add_dummy`."""
        self._called("add_dummy")
        index = max(self.present, default=0) + 1
        self.present[index] = Link(index, name, alias=LINK_ALIAS)

    def remove_link(self, link: Link) -> None:
        """As `Kernel.remove_link`."""
        self._called("remove_link")
        self.present.pop(link.index, None)

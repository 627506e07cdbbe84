# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The reconcile loop on the real kernel, in a network namespace with eth0."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

from labkit.net.namespaces import ip_batch, netns
from purelb_agent.node.netlink import Kernel
from tests.support.agent.reconciled_node import Node
from tests.support.core.snapshots import NET4, NET6, OWN4, OWN6, VIP4, VIP6

_STEP = 0.005


class LiveNode(Node):
    """A node that wins every election and has a right for minutes."""

    def __init__(self, namespace):
        self._namespace = namespace
        with netns(namespace):
            super().__init__(Kernel())

    def ip(self, *commands):
        """Run commands of `ip` in the namespace."""
        ip_batch(list(commands), namespace=self._namespace)

    def set(self, setting, value):
        """Set a setting below /proc/sys/net, which is that of the namespace of the thread."""
        with netns(self._namespace):
            Path("/proc/sys/net", setting).write_text(value)

    def on(self):
        """The names of the interfaces that have each VIP."""
        names = {link.index: link.name for link in self.kernel.links()}
        found = {VIP4: [], VIP6: []}
        for held in self.kernel.addresses():
            if held.address in found:
                found[held.address].append(names.get(held.link, ""))
        return found

    async def until_usable(self):
        """Wait until duplicate address detection has ended."""
        while any(h.tentative and h.address == VIP6 for h in self.kernel.addresses()):  # noqa: ASYNC110 - it is no event
            await asyncio.sleep(_STEP)

    async def until_on(self, name, *, seconds=5.0):
        """Wait until both VIPs are on this interface only; returns the seconds that it took."""
        begin = time.monotonic()
        wanted = {VIP4: [name], VIP6: [name]}
        while self.on() != wanted:
            assert time.monotonic() < begin + seconds, f"{self.on()} after {seconds} s"
            await asyncio.sleep(_STEP)
        return time.monotonic() - begin

    @property
    def lease(self):
        """The subnets of each change of the Lease."""
        return [subnets for subnets, _at_once in self.renewer.subnets]


def own_on(name):
    """Commands that give an interface the node's own addresses and its default routes."""
    gateways = NET4.network_address + 1, NET6.network_address + 1
    return (
        f"addr add {OWN4.address}/{NET4.prefixlen} dev {name}",
        f"addr add {OWN6.address}/{NET6.prefixlen} dev {name} nodad",
        *(f"route replace default via {gateway} dev {name}" for gateway in gateways),
    )

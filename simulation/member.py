# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A machine of a cluster, with its kernel, its kubelet and its agent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from purelb.core.holding.peer_keys import PeerKeys
from purelb.core.model import Address
from purelb.core.node.service_proxy import Answer
from purelb.core.settings import TimingChoice
from simulation.kubelet import Kubelet
from simulation.node.kernel import Kernel
from simulation.node.messages import LinkState, Route
from simulation.node.wire import Net
from simulation.time.process import Process

KEYS = PeerKeys(b"the key of all agents of a cluster")
# The interfaces that may have addresses of Services; the second one has a segment of its own.
ETH0, ETH1 = 2, 3


class Node:
    """A machine with its kernel and its agent; `pods` counts the agent's Pods that it has had.

    `nets`: the subnets of its own addresses on its first interface. `links`: its interfaces that
    may have addresses of Services. `timing` and `keys` are the settings of its next agent, which
    reads the keys again at each use; with None it asks no peers. `is_leaving`: its agent was sent
    SIGTERM. `service_proxy`: what its kube-proxy answers.
    """

    def __init__(self, kernel: Kernel, number: int, kubelet: Kubelet, nets: Sequence[Net]) -> None:
        self.name = kernel.machine.name
        self.machine = kernel.machine
        self.kernel = kernel
        # Some promote the secondaries of an address that goes, as systemd sets it, and some do not.
        self.eth0 = LinkState(
            ETH0, "eth0", b"\x02\0\0\0\0" + bytes([number]), promotes=number % 2 == 1
        )
        self.links = [self.eth0]
        self.number, self.nets = number, tuple(nets)
        self.addresses = tuple(net.network_address + 10 + number for net in nets)
        # Its own on other interfaces, with the lengths of their prefixes.
        self.more_addresses: list[tuple[int, Address, int]] = []
        self.pods = 0
        self.timing = TimingChoice()
        self.keys: PeerKeys | None = KEYS
        self.agent: Process | None = None
        self.stop = asyncio.Event()
        self.is_leaving = False
        self.service_proxy = Answer.GOOD
        self.kubelet = kubelet
        self.kernel.add_link(LinkState(1, "lo", bytes(6)))
        self.kernel.add_link(self.eth0)
        for net in nets:
            self.kernel.add_route(Route(ETH0, 100, net.network_address + 1))
        self.add_addresses()

    @property
    def own(self) -> set[Address]:
        """All its own addresses."""
        return {*self.addresses, *(address for _link, address, _length in self.more_addresses)}

    def add_second_link(self, nets: Sequence[Net]) -> LinkState:
        """Give it a second interface, eth1, with own addresses of these subnets."""
        eth1 = LinkState(ETH1, "eth1", b"\x02\0\0\0\1" + bytes([self.number]))
        self.kernel.add_link(eth1)
        self.links.append(eth1)
        for net in nets:
            address = net.network_address + 10 + self.number
            self.more_addresses.append((ETH1, address, net.prefixlen))
        self.add_addresses()
        return eth1

    def set_up(self, *, is_up: bool) -> None:
        """Set all its interfaces up or down."""
        for link in self.links:
            link.is_up = is_up

    def add_addresses(self) -> None:
        """Give the node its own addresses, as at each boot."""
        lengths = [net.prefixlen for net in self.nets]
        own = [(ETH0, *pair) for pair in zip(self.addresses, lengths, strict=True)]
        for link, address, prefix_length in (*own, *self.more_addresses):
            if (link, address) not in self.kernel.held:
                self.kernel.add_address(link, address, prefix_length)

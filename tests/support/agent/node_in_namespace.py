# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A node with the real kernel in a network namespace, and what the agent does there in one cycle.

How to use it:

    with cable() as namespace:
        machine = Machine(namespace)
        machine.cycle(service(addresses=[VIP4]))
        machine.has(VIP4)            # what the kernel says of it
        machine.kernel.close()
"""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry

from labkit.net.namespaces import ip_batch, netns
from purelb.core.holding.deadline import HoldDeadline
from purelb.core.model import Address, InterfaceAddress, Service
from purelb.core.node.decisions import VipDecision, decide_vips
from purelb.core.node.plan import plan
from purelb_agent.node.interfaces import Interfaces
from purelb_agent.node.metrics import NodeMetrics
from purelb_agent.node.netlink import Kernel
from purelb_agent.runtime import clock
from tests.support.core.snapshots import OWN4, OWN6, snapshot


class Machine:
    """A node in a namespace, with an own address in each subnet on eth0."""

    def __init__(self, namespace: str) -> None:
        self._namespace = namespace
        with netns(namespace):
            self.kernel = Kernel()
        self.ip(
            f"addr add {OWN4.address}/24 dev eth0", f"addr add {OWN6.address}/64 dev eth0 nodad"
        )
        self.interfaces = Interfaces(self.kernel, NodeMetrics(CollectorRegistry()).addresses)
        self.interfaces.read_links(0.0, max_age=30.0)
        self.links = {link.name: link for link in self.interfaces.links}

    def ip(self, *commands: str) -> None:
        """Run commands of `ip` in the namespace."""
        ip_batch(list(commands), namespace=self._namespace)

    def asks(self, command: str) -> str:
        """Return what a command of `ip` prints in the namespace."""
        argv = ["ip", "-netns", self._namespace, *command.split()]
        return subprocess.run(argv, check=True, capture_output=True, text=True).stdout

    def set(self, setting: str, value: str) -> None:
        """Set a setting below /proc/sys/net, which is that of the namespace of the thread."""
        with netns(self._namespace):
            Path("/proc/sys/net", setting).write_text(value)

    def has(self, vip: Address) -> list[InterfaceAddress]:
        """Return what the kernel says of an address, without its remaining seconds."""
        return [
            replace(held, expires_at=None, preferred_until=None)
            for held in self.kernel.addresses()
            if held.address == vip
        ]

    def cycle(self, *services: Service, **more: Any) -> Mapping[Address, VipDecision]:
        """Do one cycle of a node that wins every election; returns the decisions."""
        now = clock.now()
        seen = snapshot(
            *services,
            links=(self.links["eth0"],),
            all_links=self.interfaces.links,
            addresses=self.interfaces.read_addresses(),
            put=self.interfaces.put,
            keeps_marks=self.interfaces.keeps_marks,
            hold_deadline=HoldDeadline(now + 7, now + 10),
            **more,
        )
        made = decide_vips(seen)
        self.interfaces.apply(plan(made, seen, now=now))
        return made.by_address

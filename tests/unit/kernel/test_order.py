# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""That the simulation's kernel has addresses in the order of a real one, and lets the same go."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path

import pytest

from labkit.net.namespaces import ip_batch, netns
from purelb.core.node import rtnetlink
from purelb_agent.runtime.netlink import open_socket
from simulation.chance import stream
from simulation.node.addresses import ordered
from simulation.node.kernel import Kernel
from simulation.node.messages import LinkState
from simulation.time.machine import Machine
from simulation.time.timeline import Timeline
from tests.support.agent.namespaces import cable, can_make_namespaces

pytestmark = [
    pytest.mark.real_time,
    pytest.mark.skipif(not can_make_namespaces(), reason="needs network namespaces"),
]
V4, V6 = ip_address("172.28.1.220"), ip_address("fd28::220")


@pytest.mark.parametrize("promotes", [False, True])
@pytest.mark.parametrize("number", range(6))
def test_addresses_come_and_go_as_in_a_real_kernel(number, promotes):
    chance = stream(number, "addresses")
    model = Kernel(Machine(Timeline(1), "n1"), stream(1, "kernel"))
    model.add_link(LinkState(2, "eth0", bytes(6), promotes=promotes))
    here: dict[object, str] = {}
    with cable() as name, netns(name), open_socket(0) as opened:
        Path("/proc/sys/net/ipv4/conf/eth0/promote_secondaries").write_text(str(int(promotes)))
        for _step in range(40):
            vip = chance.choice((V4, V6)) - chance.randrange(12)
            if vip in {held.place[1] for held in model.held.values()}:
                ip_batch([f"addr del {vip}/{here[vip]} dev eth0"], namespace=name)
                model.remove_address((2, vip))
            else:
                longest = vip.max_prefixlen
                here[vip] = chance.choice((longest - 8, longest - 3, longest))
                ip_batch([f"addr add {vip}/{here[vip]} dev eth0 nodad"], namespace=name)
                model.add_address(2, vip, here[vip])
            assert [held.place[1] for held in ordered(model.held)] == on_eth0(opened)


def on_eth0(opened):
    """The addresses of eth0 where a netlink socket was opened, in the order of the kernel."""
    opened.send(rtnetlink.build_dump(rtnetlink.RTM_GETADDR, 1))
    messages = rtnetlink.read_reply(lambda: opened.recv(1 << 20), 1).messages
    found = [rtnetlink.parse_address(message).address for message in messages]
    return [address for address in found if not (address.is_link_local or address.is_loopback)]

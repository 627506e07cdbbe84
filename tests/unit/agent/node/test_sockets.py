# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import socket
import time
from contextlib import closing
from ipaddress import ip_address

import pytest

from purelb.core.node.packets import build_announcement
from purelb_agent.node.sockets import FrameSender

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs CAP_NET_RAW")
MAC = b"\x02\x1b\0\0\0\x63"
EVERY_PROTOCOL = socket.htons(0x0003)
VIPS = pytest.mark.parametrize("vip", ["172.28.1.220", "fd28::220"], ids=["v4", "v6"])


def heard(ear, count):
    ear.settimeout(5)
    frames = set()
    while len(frames) < count:
        frame = ear.recv(2048)
        if MAC in frame:
            frames.add(frame)
    return frames


@pytest.fixture
def sender():
    with closing(FrameSender()) as made:
        yield made


@VIPS
def test_frames_go_out_as_they_are(sender, vip):
    frames = set(build_announcement(MAC, ip_address(vip)))
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, EVERY_PROTOCOL) as ear:
        ear.bind(("lo", 0))
        sender.send("lo", frames)
        assert heard(ear, len(frames)) == frames


def test_sending_waits_for_nothing(sender):
    frames = build_announcement(MAC, ip_address("172.28.1.220"))
    begin = time.perf_counter()
    for _again in range(50):
        sender.send("lo", frames)
    # To close a socket each time would take fifty times 6 ms at the least.
    assert time.perf_counter() - begin < 0.1


def test_an_interface_that_is_gone_is_an_error(sender):
    with pytest.raises(OSError, match="No such device"):
        sender.send("gone0", [bytes(60)])


def test_a_closed_sender_can_be_used_again(sender):
    sender.send("lo", build_announcement(MAC, ip_address("fd28::220")))
    sender.close()
    sender.send("lo", build_announcement(MAC, ip_address("fd28::220")))

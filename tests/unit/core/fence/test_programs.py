# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the programs do with frames of each kind, in a machine of Python."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest

from purelb.core.fence.programs import ANYWHERE, ELSEWHERE, FenceProgram, code_of, key_of
from tests.support.fence.bpf_machine import DROP, INTERFACE, MAPS, PASS, Machine

VIP4, VIP6 = ip_address("172.28.1.220"), ip_address("fd28::220")
OTHER4, OTHER6 = ip_address("172.28.1.9"), ip_address("fd28::9")
MACS = bytes(12)
DEADLINE, UNTIL = 1000, 5000
SHUT = 2000


def arp(sender, target=OTHER4):
    fields = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 2)
    return b"\x08\x06", fields + bytes(6) + sender.packed + bytes(6) + target.packed


def ipv4(source, target):
    return b"\x08\x00", bytes(12) + source.packed + target.packed + b"payload"


def ipv6(source, target, protocol=6, payload=b"payload"):
    head = bytes(6) + bytes([protocol, 64])
    return b"\x86\xdd", head + source.packed + target.packed + payload


def advertisement(source, target, kind=136):
    return ipv6(source, OTHER6, 58, bytes([kind]) + bytes(7) + target.packed)


OUT = {
    "arp": arp(VIP4),
    "ipv4": ipv4(VIP4, OTHER4),
    "ipv6": ipv6(VIP6, OTHER6),
    "own advertisement": advertisement(VIP6, VIP6),
    "advertisement from another source": advertisement(OTHER6, VIP6),
}
OUT_PASSES = {
    "arp of another": arp(OTHER4, VIP4),
    "ipv4 to": ipv4(OTHER4, VIP4),
    "ipv6 to": ipv6(OTHER6, VIP6),
    "solicitation": advertisement(OTHER6, VIP6, kind=135),
    "advertisement of another": advertisement(OTHER6, OTHER6),
    "another protocol": (b"\x88\xcc", bytes(80)),
    "cut arp": (b"\x08\x06", bytes(8)),
    "cut ipv6": (b"\x86\xdd", bytes(8)),
}
IN = {"ipv4": ipv4(OTHER4, VIP4), "ipv6": ipv6(OTHER6, VIP6)}
IN_PASSES = {
    "ipv4 from": ipv4(VIP4, OTHER4),
    "ipv6 from": ipv6(VIP6, OTHER6),
    "arp": arp(OTHER4, VIP4),
    "cut ipv4": (b"\x08\x00", bytes(8)),
}
ARP = {"arp": arp(VIP4)}
ARP_PASSES = {"arp of another": arp(OTHER4, VIP4), "ipv4": ipv4(VIP4, OTHER4)}
DROPPED = {FenceProgram.INGRESS: IN, FenceProgram.EGRESS: OUT, FenceProgram.ARP: ARP}
PASSED = {
    FenceProgram.INGRESS: IN_PASSES,
    FenceProgram.EGRESS: OUT_PASSES,
    FenceProgram.ARP: ARP_PASSES,
}
IP = (FenceProgram.INGRESS, FenceProgram.EGRESS)
TAGS = {
    "untagged": b"",
    "802.1Q": b"\x81\0\0\7",
    "QinQ": b"\x88\xa8\0\7\x81\0\0\7",
}


def cases(table):
    return [
        pytest.param(program, frame, id=f"{program.value}: {name}")
        for program, frames in table.items()
        for name, frame in frames.items()
    ]


def guarding(value=INTERFACE, *, slept=0):
    vips = {key_of(VIP4): value, key_of(VIP6): value}
    return Machine(vips, deadline=DEADLINE, until=UNTIL, slept=slept)


def verdict(program, frame, *, now=SHUT, tag=b"", vlan=None, value=INTERFACE):
    """What a program says, and how many drops it counted; `value`: of both VIPs."""
    kind, payload = frame
    machine = guarding(value)
    data = MACS + tag + kind + payload
    code = code_of(program, MAPS, byte_order="little")
    return machine.run(code, data, now=now, vlan=vlan), machine.drops


@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS)
@pytest.mark.parametrize(("program", "frame"), cases(DROPPED))
def test_what_is_of_a_vip_is_dropped_while_shut(program, frame, tag):
    assert verdict(program, frame, tag=tag) == (DROP, 1)


@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS)
@pytest.mark.parametrize(("program", "frame"), cases(PASSED))
def test_all_else_passes_while_shut(program, frame, tag):
    assert verdict(program, frame, tag=tag) == (PASS, 0)


@pytest.mark.parametrize(("program", "frame"), cases(DROPPED))
def test_the_end_is_exact(program, frame):
    assert verdict(program, frame, now=DEADLINE - 1) == (PASS, 0)
    assert verdict(program, frame, now=DEADLINE) == (DROP, 1)
    assert verdict(program, frame, now=UNTIL - 1) == (DROP, 1)
    assert verdict(program, frame, now=UNTIL) == (PASS, 0)


@pytest.mark.parametrize(("program", "frame"), cases(DROPPED))
def test_sleep_ends_the_right_and_does_not_end_the_fence(program, frame):
    """Lifetimes stand still meanwhile, so that the addresses are still there."""
    code, data = code_of(program, MAPS, byte_order="little"), MACS + b"".join(frame)
    assert guarding(slept=11).run(code, data, now=UNTIL + 10) == DROP
    assert guarding(slept=10).run(code, data, now=UNTIL + 10) == PASS


@pytest.mark.parametrize(("program", "frame"), cases(DROPPED))
def test_another_vlan_passes_and_a_mere_priority_does_not(program, frame):
    """The tag that the interface took out of the frame; its upper bits are the priority."""
    assert verdict(program, frame, vlan=0x2007) == (PASS, 0)
    assert verdict(program, frame, vlan=0x2000) == (DROP, 1)


def test_a_third_tag_passes():
    tag = TAGS["QinQ"] + TAGS["802.1Q"]
    assert verdict(FenceProgram.EGRESS, OUT["ipv4"], tag=tag) == (PASS, 0)


def test_frames_of_all_lengths_do_no_harm():
    for program in FenceProgram:
        for kind, payload in (*OUT.values(), *IN.values()):
            for length in range(len(payload)):
                assert verdict(program, (kind, payload[:length]))[0] in (PASS, DROP)


def test_keys():
    assert key_of(VIP4) == bytes(10) + b"\xff\xff" + VIP4.packed
    assert key_of(VIP6) == VIP6.packed


@pytest.mark.parametrize("tag", TAGS.values(), ids=TAGS)
@pytest.mark.parametrize("now", [DEADLINE - 1, SHUT], ids=["open", "shut"])
@pytest.mark.parametrize("value", [ELSEWHERE, INTERFACE + 1], ids=["node", "interface"])
@pytest.mark.parametrize("program", [FenceProgram.EGRESS, FenceProgram.ARP])
def test_arp_about_an_address_that_another_one_has_is_dropped_always(program, value, now, tag):
    assert verdict(program, ARP["arp"], now=now, tag=tag, value=value) == (DROP, 1)
    assert verdict(program, ARP["arp"], now=UNTIL, tag=tag, value=value) == (PASS, 0)
    assert verdict(program, ARP["arp"], now=now, vlan=7, value=value) == (PASS, 0)
    asked = ARP_PASSES["arp of another"]
    assert verdict(program, asked, now=now, tag=tag, value=value) == (PASS, 0)


@pytest.mark.parametrize("program", [FenceProgram.EGRESS, FenceProgram.ARP])
def test_arp_that_may_leave_by_any_interface_ends_with_the_right(program):
    now = DEADLINE - 1
    assert verdict(program, ARP["arp"], now=now, value=ANYWHERE) == (PASS, 0)
    assert verdict(program, ARP["arp"], now=SHUT, value=ANYWHERE) == (DROP, 1)


@pytest.mark.parametrize(("program", "frame"), cases({p: DROPPED[p] for p in IP}))
def test_traffic_of_an_address_on_another_interface_ends_with_the_right(program, frame):
    other = INTERFACE + 1
    if frame != OUT["arp"]:
        assert verdict(program, frame, now=DEADLINE - 1, value=other) == (PASS, 0)
        assert verdict(program, frame, now=SHUT, value=other) == (DROP, 1)


@pytest.mark.parametrize("now", [DEADLINE - 1, SHUT], ids=["open", "shut"])
@pytest.mark.parametrize(("program", "frame"), cases(DROPPED))
def test_other_traffic_of_an_address_of_another_node_passes(program, frame, now):
    if frame is not ARP["arp"] and frame != OUT["arp"]:
        assert verdict(program, frame, now=now, value=ELSEWHERE) == (PASS, 0)


def test_a_machine_of_the_other_byte_order():
    """The same instructions: registers swapped in their byte, numbers and constants turned."""
    little = code_of(FenceProgram.EGRESS, MAPS, byte_order="little")
    big = code_of(FenceProgram.EGRESS, MAPS, byte_order="big")
    turned = []
    for at in range(0, len(little), 8):
        code, registers, offset, constant = struct.unpack_from("<BBhi", little, at)
        turned.append((code, (registers & 15) << 4 | registers >> 4, offset, constant))
    found = [struct.unpack_from(">BBhi", big, at) for at in range(0, len(big), 8)]
    compared = list(zip(found, turned, strict=True))
    different = [(b[3] & 0xFFFFFFFF, t[3] & 0xFFFFFFFF) for b, t in compared if b != t]
    assert all(b[:3] == t[:3] for b, t in compared)
    # Ethertypes as the machine loads them, and the middle of a mapped address.
    assert set(different) == {
        (0x0800, 0x0008),
        (0x86DD, 0xDD86),
        (0x0806, 0x0608),
        (0x8100, 0x0081),
        (0x88A8, 0xA888),
        (0x0000FFFF, 0xFFFF0000),
    }

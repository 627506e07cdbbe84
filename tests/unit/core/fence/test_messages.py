# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The bytes of bpf() and of the messages about filters; the kernel takes them in test_kernel.py."""

from __future__ import annotations

import struct
import sys

import pytest

from purelb.core.fence import bpf, filters
from purelb.core.fence.filters import Filter, Qdisc
from purelb.core.fence.hooks import Hook
from purelb.core.fence.programs import FenceProgram
from purelb.core.node.rtnetlink import Message, attribute

INGRESS, EGRESS = Hook(5, is_egress=False), Hook(5, is_egress=True)
TCMSG = struct.Struct("=BBHiIII")
# Of all protocols, in network order, and of priority 1.
INFO = 1 << 16 | int.from_bytes(b"\0\3", sys.byteorder)


def test_maps():
    control, vips = bpf.control_map(), bpf.vips_map()
    assert struct.unpack_from("=7I", control) == (2, 4, 24, 1, 0x400, 0, 0)
    assert struct.unpack_from("=7I", vips) == (1, 16, 4, 16384, 1, 0, 0)
    names = [made[28:].rstrip(b"\0") for made in (control, vips)]
    assert names == [b"purelb_ctl", b"purelb_vips"]
    assert len(control) == len(vips) == 44


def test_elements():
    assert bpf.update(4, 0x1000, 0x2000) == struct.pack("=IIQQQ", 4, 0, 0x1000, 0x2000, 0)
    assert bpf.delete(4, 0x1000) == struct.pack("=IIQ", 4, 0, 0x1000)


def test_programs():
    """A log is asked for only with its room."""
    quiet = bpf.load_program(FenceProgram.ARP, size=560, code_at=0x1000, license_at=0x2000)
    logged = bpf.load_program(
        FenceProgram.ARP, size=560, code_at=0x1000, license_at=0x2000, log_at=0x3000, log_size=99
    )
    assert len(quiet) == len(logged) == 68
    assert struct.unpack_from("=IIQQIIQ", quiet) == (3, 70, 0x1000, 0x2000, 0, 0, 0)
    assert struct.unpack_from("=IIQQIIQ", logged) == (3, 70, 0x1000, 0x2000, 1, 99, 0x3000)
    assert quiet[48:64].rstrip(b"\0") == b"purelb_arp"


def test_the_count_of_programs_before_ours():
    asked = bpf.query_tcx(5, is_egress=True)
    assert len(asked) == bpf.QUERY_BYTES
    assert struct.unpack_from("=II", asked) == (5, 47)
    assert bpf.parse_query(asked[:24] + struct.pack("=I", 2) + asked[28:]) == 2


def test_the_machines_that_are_known():
    assert {"x86_64", "aarch64"} <= bpf.SYSCALL_NUMBERS.keys()


def parts(message):
    """Return type, flags and tcmsg of a request, and its attributes as bytes."""
    length, kind, flags, sequence, _port = struct.unpack_from("=IHHII", message)
    assert (length, sequence) == (len(message), 9)
    return kind, flags, TCMSG.unpack_from(message, 16), message[36:]


def test_clsact():
    assert parts(filters.build_clsact(5, 9)) == (
        36,
        0x605,
        (0, 0, 0, 5, 0xFFFF0000, 0xFFFFFFF1, 0),
        attribute(1, b"clsact\0"),
    )


@pytest.mark.parametrize(
    ("hook", "parent"), [(INGRESS, 0xFFFFFFF2), (EGRESS, 0xFFFFFFF3)], ids=["in", "out"]
)
def test_filters(hook, parent):
    options = (
        attribute(6, struct.pack("=I", 11))
        + attribute(7, b"purelb\0")
        + attribute(8, struct.pack("=I", 1))
    )
    head = (0, 0, 0, 5, 0x7075, parent, INFO)
    attached = filters.build_filter(hook, 11, 0x7075, 9)
    assert parts(attached) == (44, 0x405, head, attribute(1, b"bpf\0") + attribute(2, options))
    assert len(attached) == 76
    removed = filters.build_remove_filter(hook, 0x7075, 9)
    assert parts(removed) == (45, 0x5, head, attribute(1, b"bpf\0"))
    dumped = filters.build_dump_filters(hook, 9)
    assert parts(dumped) == (46, 0x301, (0, 0, 0, 5, 0, parent, 0), b"")


def filter_message(handle, kind, *options):
    body = TCMSG.pack(0, 0, 0, 5, handle, 0xFFFFFFF3, INFO) + attribute(1, kind)
    return Message(44, 0, 9, body + attribute(2, b"".join(options)))


def test_what_a_dump_shows():
    ours = filter_message(
        0x7075, b"bpf\0", attribute(7, b"purelb\0"), attribute(11, struct.pack("=I", 97))
    )
    assert filters.parse_filter(ours) == Filter(0x7075, "bpf", "purelb", 97)
    assert filters.parse_filter(ours).is_ours
    # The options of another kind mean something else.
    other = filter_message(0x800, b"u32\0", attribute(7, b"purelb\0"))
    assert filters.parse_filter(other) == Filter(0x800, "u32")
    assert not filters.parse_filter(other).is_ours
    # Before the filters of a priority the kernel lists the priority itself.
    assert filters.parse_filter(filter_message(0, b"bpf\0")) is None


def test_qdiscs():
    assert parts(filters.build_dump_qdiscs(9)) == (38, 0x301, (0,) * 7, b"")
    body = TCMSG.pack(0, 0, 0, 5, 0xFFFF0000, 0xFFFFFFF1, 1) + attribute(1, b"clsact\0")
    assert filters.parse_qdisc(Message(36, 0, 9, body)) == Qdisc(5, 0xFFFFFFF1, "clsact")

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The real kernel, compared with what pyroute2 reads, and dumps of a fake one."""

from __future__ import annotations

import struct

import pytest

from purelb.audit import netlink
from purelb.core.errors import PureLBError
from purelb.core.node.rtnetlink import (
    NLM_F_DUMP_INTR,
    NLMSG_DONE,
    NLMSG_ERROR,
    RTM_GETADDR,
    RTM_NEWADDR,
)

_MULTI = 0x2  # NLM_F_MULTI
END = (NLMSG_DONE, _MULTI, 0, bytes(4))


class FakeKernel:
    """Replies to dumps from a list; counts them.

    A message of a reply is (kind, flags, offset from the request's sequence number, body).
    """

    def __init__(self, *replies):
        self.replies = list(replies)
        self.sequence = 0

    def send(self, request):
        self.sequence = struct.unpack_from("=IHHII", request)[3]

    def recv(self, _size):
        parts = self.replies.pop(0)
        return b"".join(
            struct.pack("=IHHII", 16 + len(body), kind, flags, self.sequence + off, 0)
            + body
            + bytes(-len(body) % 4)
            for kind, flags, off, body in parts
        )


def dumped(kernel):
    messages = netlink._dump(kernel, RTM_GETADDR)  # noqa: SLF001 - only the socket is replaced
    return [message.body for message in messages]


def read_by_pyroute2():
    """Return the links by index and all addresses, as an independent library reads them."""
    pyroute2 = pytest.importorskip("pyroute2")
    with pyroute2.IPRoute() as reader:
        links = {m["index"]: m.get_attr("IFLA_IFNAME") for m in reader.get_links()}
        addresses = {
            (m["index"], m.get_attr("IFA_LOCAL") or m.get_attr("IFA_ADDRESS"), m["prefixlen"])
            for m in reader.get_addr()
        }
    return links, addresses


def test_the_interfaces_are_those_that_an_independent_library_reads():
    # Other tests make and remove interfaces of this machine.
    for _attempt in range(100):
        expected, found = read_by_pyroute2(), netlink.interfaces()
        if read_by_pyroute2() == expected:
            break
    links = {interface.index: interface.name for interface in found}
    addresses = {(i.index, str(h.address), h.prefixlen) for i in found for h in i.addresses}
    assert (links, addresses) == expected


def test_the_loopback_interface_is_up_and_its_addresses_are_permanent():
    lo = next(interface for interface in netlink.interfaces() if interface.name == "lo")
    held = next(held for held in lo.addresses if str(held.address) == "127.0.0.1")
    assert (lo.is_up, held.prefixlen, held.valid_lft) == (True, 8, None)
    assert held.flag_names == ("permanent",)


class TestDump:
    def test_messages_of_other_replies_are_ignored(self):
        kernel = FakeKernel(
            [(RTM_NEWADDR, _MULTI, 0, b"mine"), (RTM_NEWADDR, _MULTI, 7, b"else")], [END]
        )
        assert dumped(kernel) == [b"mine"]

    def test_an_interrupted_dump_is_repeated(self):
        half = (RTM_NEWADDR, _MULTI | NLM_F_DUMP_INTR, 0, b"half")
        kernel = FakeKernel([half, END], [(RTM_NEWADDR, _MULTI, 0, b"full"), END])
        assert dumped(kernel) == [b"full"]

    def test_a_dump_interrupted_each_time_is_an_error(self):
        kernel = FakeKernel(*[[(NLMSG_DONE, NLM_F_DUMP_INTR, 0, bytes(4))]] * 5)
        with pytest.raises(PureLBError, match="changed during each of 5 attempts"):
            dumped(kernel)

    def test_a_refused_dump_is_an_error_with_its_reason(self):
        kernel = FakeKernel([(NLMSG_ERROR, 0, 0, struct.pack("=i", -1))])
        with pytest.raises(PureLBError, match="Operation not permitted"):
            dumped(kernel)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The kernel's tables, compared with what pyroute2 reads of them, and made up where need be."""

from __future__ import annotations

import socket
import struct
from ipaddress import ip_address

import pytest

from purelb.audit import netlink
from purelb.core.errors import PureLBError

BOTH = pytest.mark.parametrize(
    ("address", "family"),
    [("172.28.1.220", socket.AF_INET), ("fd28::220", socket.AF_INET6)],
    ids=["v4", "v6"],
)
FOREVER = 0xFFFFFFFF
OWN = 254


def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def number(value):
    return struct.pack("=I", value)


def address_body(address, family, *, flags=0, valid=8, preferred=7):
    packed = ip_address(address).packed
    return (
        struct.pack("=BBBBI", family, 24, 0x80, 0, 2)
        + attribute(1, packed)
        + attribute(6, struct.pack("=IIII", preferred, valid, 0, 0))
        + attribute(8, number(flags))
    )


def route_body(family, *attributes, length=0, table=OWN):
    return struct.pack("=BBBBBBBBI", family, length, 0, 0, table, 0, 0, 0, 0) + b"".join(attributes)


class FakeKernel:
    """Answers dumps from a list; counts them."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.sequence = 0

    def send(self, request):
        self.sequence = struct.unpack_from("=IHHII", request)[3]

    def recv(self, _size):
        parts = self.answers.pop(0)
        return b"".join(
            struct.pack("=IHHII", 16 + len(body), kind, flags, self.sequence + off, 0) + body
            for kind, flags, off, body in parts
        )


def dumped(kernel):
    return netlink._dump(kernel, 22, 8)  # noqa: SLF001 - the socket is the only thing to replace


def test_the_interfaces_are_those_that_an_independent_reader_sees():
    pyroute2 = pytest.importorskip("pyroute2")
    with pyroute2.IPRoute() as reader:
        links = {m["index"]: m.get_attr("IFLA_IFNAME") for m in reader.get_links()}
        addresses = {
            (m["index"], m.get_attr("IFA_LOCAL") or m.get_attr("IFA_ADDRESS"), m["prefixlen"])
            for m in reader.get_addr()
        }
    found = netlink.interfaces()
    assert {one.index: one.name for one in found} == links
    assert {(i.index, str(h.address), h.prefixlen) for i in found for h in i.addresses} == addresses


def test_the_loopback_interface_is_up_and_has_its_addresses_for_ever():
    lo = next(one for one in netlink.interfaces() if one.name == "lo")
    held = next(one for one in lo.addresses if str(one.address) == "127.0.0.1")
    assert (lo.is_up, held.prefixlen, held.valid, held.flags) == (True, 8, None, ("permanent",))


@BOTH
class TestAnAddress:
    def test_has_lifetimes_in_seconds(self, address, family):
        ((held,),) = netlink.addresses_of([address_body(address, family)]).values()
        assert (str(held.address), held.prefixlen) == (address, 24)
        assert (held.valid, held.preferred, held.flags) == (8, 7, ())

    def test_without_end_has_none(self, address, family):
        body = address_body(address, family, valid=FOREVER, preferred=FOREVER, flags=0x80)
        ((held,),) = netlink.addresses_of([body]).values()
        assert (held.valid, held.preferred, held.flags) == (None, None, ("permanent",))

    def test_has_flags_by_name(self, address, family):
        body = address_body(address, family, flags=0x02 | 0x08 | 0x20 | 0x40 | 0x200)
        ((held,),) = netlink.addresses_of([body]).values()
        assert held.flags == ("nodad", "dadfailed", "deprecated", "tentative", "noprefixroute")

    def test_of_a_link_between_two_hosts_is_the_own_end(self, address, family):
        body = address_body(address, family) + attribute(
            2, ip_address(address).packed[:-1] + b"\x07"
        )
        ((held,),) = netlink.addresses_of([body]).values()
        assert held.address.packed[-1] == 7

    def test_without_lifetimes_is_without_end(self, address, family):
        head = struct.pack("=BBBBI", family, 24, 0x80, 0, 2)
        body = head + attribute(1, ip_address(address).packed)
        ((held,),) = netlink.addresses_of([body]).values()
        assert (held.valid, held.preferred, held.flags) == (None, None, ("permanent",))


def test_addresses_of_other_families_are_none():
    assert netlink.addresses_of([struct.pack("=BBBBI", 17, 0, 0, 0, 2)]) == {}


@pytest.mark.parametrize(("family", "version"), [(socket.AF_INET, 4), (socket.AF_INET6, 6)])
class TestADefaultRoute:
    def test_has_the_lowest_metric_of_its_interface(self, family, version):
        rows = [
            route_body(family, attribute(4, number(2)), attribute(6, number(m))) for m in (9, 3)
        ]
        assert netlink.metrics_of(rows) == {2: {version: 3}}

    def test_without_a_metric_has_zero(self, family, version):
        assert netlink.metrics_of([route_body(family, attribute(4, number(2)))]) == {
            2: {version: 0}
        }

    def test_by_several_interfaces_counts_for_each(self, family, version):
        hops = b"".join(struct.pack("=HBBi", 8, 0, 0, index) for index in (2, 3))
        found = netlink.metrics_of([route_body(family, attribute(9, hops))])
        assert found == {2: {version: 0}, 3: {version: 0}}

    def test_of_another_table_does_not_count(self, family, version):
        row = route_body(family, attribute(4, number(2)), attribute(15, number(1000)))
        assert netlink.metrics_of([row]) == {}

    def test_is_told_from_others(self, family, version):
        assert netlink.is_default_route(route_body(family))
        assert not netlink.is_default_route(route_body(family, length=8))


class TestADump:
    def test_leaves_out_what_answers_other_requests(self):
        kernel = FakeKernel([(20, 2, 0, b"mine"), (20, 2, 7, b"else")], [(3, 2, 0, bytes(4))])
        assert dumped(kernel) == [b"mine"]

    def test_that_was_disturbed_is_made_again(self):
        end = (3, 2, 0, bytes(4))
        kernel = FakeKernel([(20, 2 | 0x10, 0, b"half"), end], [(20, 2, 0, b"full"), end])
        assert dumped(kernel) == [b"full"]

    def test_that_is_disturbed_each_time_says_so(self):
        kernel = FakeKernel(*[[(3, 0x10, 0, bytes(4))]] * 5)
        with pytest.raises(PureLBError, match="changed during each of 5 looks"):
            dumped(kernel)

    def test_that_is_refused_says_why(self):
        kernel = FakeKernel([(2, 0, 0, struct.pack("=i", -1))])
        with pytest.raises(PureLBError, match="Operation not permitted"):
            dumped(kernel)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Messages compared with what pyroute2 encodes and decodes; by hand what it cannot."""

from __future__ import annotations

import struct
from dataclasses import replace
from ipaddress import ip_address

import pytest

pytest.importorskip("pyroute2")
from pyroute2.netlink import (
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_DUMP,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    NLM_F_REQUEST,
)
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from purelb.core.model import InterfaceAddress
from purelb.core.names import ADDRESS_PROTOCOL
from purelb.core.node import rtnetlink
from purelb.core.node.plan import Put
from purelb.core.node.rtnetlink import LinkMessage, Message
from tests.support.core.netlink_messages import attribute, encoded

BOTH = pytest.mark.parametrize(
    ("vip", "prefixlen", "family"),
    [(ip_address("172.28.1.220"), 24, 2), (ip_address("fd28::220"), 64, 10)],
    ids=["v4", "v6"],
)
NOPREFIXROUTE, NODAD, TENTATIVE, DADFAILED, DEPRECATED = 0x200, 0x02, 0x40, 0x08, 0x20
PERMANENT = 0x80
IFF_UP = 0x1
FOREVER = 0xFFFFFFFF


def decoded(data, kind=ifaddrmsg):
    """Our bytes, decoded by an independent library."""
    message = kind(data)
    message.decode()
    return message


def address_message(family, *attributes, flags=0, kind=rtnetlink.RTM_NEWADDR):
    """An address message as no library writes it."""
    head = struct.pack("=BBBBI", family, 24, flags, 0, 2)
    return Message(kind, 0, 1, head + b"".join(attributes))


@BOTH
class TestAddresses:
    def put(self, vip, prefixlen, **changes):
        values = {"no_prefix_route": True, "no_dad": False, **changes}
        return Put(7, vip, prefixlen, 9, 8, is_new=True, **values)

    @pytest.mark.parametrize(
        ("options", "flags"),
        [
            pytest.param({}, NOPREFIXROUTE, id="default"),
            pytest.param({"no_dad": True}, NOPREFIXROUTE | NODAD, id="without DAD"),
            pytest.param({"no_prefix_route": False}, 0, id="with prefix route"),
        ],
    )
    def test_pyroute2_decodes_a_new_address(self, vip, prefixlen, family, options, flags):
        message = decoded(rtnetlink.build_put(self.put(vip, prefixlen, **options), 42))
        header = message["header"]
        assert (header["type"], header["sequence_number"]) == (rtnetlink.RTM_NEWADDR, 42)
        assert header["flags"] == NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
        assert (message["family"], message["prefixlen"], message["index"]) == (family, prefixlen, 7)
        assert message.get_attr("IFA_LOCAL") == message.get_attr("IFA_ADDRESS") == str(vip)
        info = message.get_attr("IFA_CACHEINFO")
        assert (info["ifa_valid"], info["ifa_preferred"]) == (9, 8)
        assert message.get_attr("IFA_FLAGS") == flags
        assert message.get_attr("IFA_PROTO") == ADDRESS_PROTOCOL

    def test_a_reset_differs_from_a_new_address_in_its_mode_only(self, vip, prefixlen, family):
        new = self.put(vip, prefixlen)
        reset = decoded(rtnetlink.build_put(replace(new, is_new=False), 42))
        assert reset["header"].pop("flags") == (
            NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_REPLACE
        )
        added = decoded(rtnetlink.build_put(new, 42))
        added["header"].pop("flags")
        assert reset == added

    def test_a_put_without_lifetimes_never_expires(self, vip, prefixlen, family):
        put = Put(7, vip, prefixlen, None, None, no_prefix_route=True, no_dad=False, is_new=True)
        info = decoded(rtnetlink.build_put(put, 42)).get_attr("IFA_CACHEINFO")
        assert (info["ifa_valid"], info["ifa_preferred"]) == (FOREVER, FOREVER)

    def test_pyroute2_decodes_a_removal(self, vip, prefixlen, family):
        message = decoded(rtnetlink.build_remove(InterfaceAddress(7, vip, prefixlen), 1))
        assert message["header"]["type"] == rtnetlink.RTM_DELADDR
        assert message["header"]["flags"] == NLM_F_REQUEST | NLM_F_ACK
        assert (message["family"], message["prefixlen"], message["index"]) == (family, prefixlen, 7)
        assert message.get_attr("IFA_LOCAL") == str(vip)

    @pytest.mark.parametrize(
        ("flags", "expected", "names"),
        [
            (0, {}, ()),
            (TENTATIVE, {"tentative": True}, ("tentative",)),
            (
                TENTATIVE | DADFAILED,
                {"tentative": True, "dad_failed": True},
                ("dadfailed", "tentative"),
            ),
            (
                DEPRECATED | NOPREFIXROUTE,
                {"deprecated": True, "no_prefix_route": True},
                ("deprecated", "noprefixroute"),
            ),
            (NODAD | PERMANENT, {}, ("nodad", "permanent")),
        ],
    )
    def test_an_address_encoded_by_pyroute2_is_parsed(
        self, vip, prefixlen, family, flags, expected, names
    ):
        message = encoded(
            ifaddrmsg,
            rtnetlink.RTM_NEWADDR,
            {"family": family, "prefixlen": prefixlen, "index": 7},
            [
                ("IFA_ADDRESS", str(vip)),
                ("IFA_FLAGS", flags),
                ("IFA_CACHEINFO", {"ifa_preferred": 5, "ifa_valid": 9, "cstamp": 0, "tstamp": 0}),
                ("IFA_PROTO", 18),
            ],
        )
        parsed = rtnetlink.parse_address(message)
        assert parsed[:5] == (7, vip, prefixlen, 9, 5)
        assert parsed.flag_names == names
        held = rtnetlink.interface_address(message, now=100.0)
        assert held == InterfaceAddress(7, vip, prefixlen, 109.0, 105.0, protocol=18, **expected)

    @pytest.mark.parametrize("more", [(), (attribute(11, b""),)], ids=["none", "empty"])
    def test_an_address_without_protocol_has_0(self, vip, prefixlen, family, more):
        message = address_message(family, attribute(1, vip.packed), *more)
        assert rtnetlink.interface_address(message, now=0.0).protocol == 0

    def test_an_infinite_lifetime_has_no_expiry(self, vip, prefixlen, family):
        message = encoded(
            ifaddrmsg,
            rtnetlink.RTM_NEWADDR,
            {"family": family, "prefixlen": prefixlen, "index": 7},
            [
                ("IFA_ADDRESS", str(vip)),
                (
                    "IFA_CACHEINFO",
                    {"ifa_preferred": FOREVER, "ifa_valid": FOREVER, "cstamp": 0, "tstamp": 0},
                ),
            ],
        )
        parsed = rtnetlink.parse_address(message)
        assert (parsed.valid_lft, parsed.preferred_lft) == (None, None)
        held = rtnetlink.interface_address(message, now=100.0)
        assert (held.expires_at, held.preferred_until) == (None, None)

    def test_a_message_without_cacheinfo_and_flags_is_permanent(self, vip, prefixlen, family):
        message = address_message(family, attribute(1, vip.packed), flags=PERMANENT)
        parsed = rtnetlink.parse_address(message)
        assert (parsed.valid_lft, parsed.preferred_lft) == (None, None)
        assert parsed.flag_names == ("permanent",)

    def test_the_local_end_of_a_point_to_point_link_is_the_address(self, vip, prefixlen, family):
        peer = vip.packed[:-1] + b"\x07"
        message = address_message(family, attribute(1, peer), attribute(2, vip.packed))
        assert rtnetlink.parse_address(message).address == vip

    def test_attributes_after_a_truncated_one_are_ignored(self, vip, prefixlen, family):
        whole = attribute(1, vip.packed)
        for cut in (struct.pack("=HH", 0, 6), struct.pack("=HH", 400, 6), b"\0"):
            message = address_message(family, whole, cut)
            assert rtnetlink.parse_address(message).valid_lft is None
        assert rtnetlink.parse_address(address_message(family, whole[:-1])) is None


def test_an_address_of_another_family_is_not_parsed():
    packet = address_message(17, attribute(1, b"\x01"))
    assert rtnetlink.parse_address(packet) is None
    assert rtnetlink.interface_address(packet, now=0.0) is None


def test_a_message_without_an_address_is_not_parsed():
    assert rtnetlink.parse_address(address_message(2)) is None


class TestLinks:
    def link(self, *attributes, flags=0x1, kind=rtnetlink.ARPHRD_ETHER):
        return encoded(
            ifinfmsg,
            rtnetlink.RTM_NEWLINK,
            {"index": 3, "flags": flags, "ifi_type": kind},
            [("IFLA_IFNAME", "eth0"), *attributes],
        )

    def test_a_link_is_parsed(self):
        message = self.link(
            ("IFLA_ADDRESS", "02:1b:00:00:0b:01"), ("IFLA_OPERSTATE", "UP"), flags=0x1043
        )
        mac = bytes.fromhex("021b00000b01")
        expected = LinkMessage(3, "eth0", mac, is_up=True, state="up", alias="")
        assert rtnetlink.parse_link(message) == expected

    @pytest.mark.parametrize(
        ("number", "expected"),
        [(0, True), (2, False), (3, False), (5, False), (6, True), (9, True)],
    )
    def test_a_link_has_a_carrier_unless_the_kernel_knows_better(self, number, expected):
        head = struct.pack("=BxHiII", 0, 1, 3, 0x1003, 0)
        name, state = struct.pack("=HH", 9, 3) + b"eth0\0\0\0\0", struct.pack("=HHI", 5, 16, number)
        message = rtnetlink.Message(rtnetlink.RTM_NEWLINK, 0, 1, head + name + state)
        assert rtnetlink.has_carrier(rtnetlink.parse_link(message).state) is expected

    def test_missing_attributes_have_defaults(self):
        expected = LinkMessage(3, "eth0", b"", is_up=False, state="unknown", alias="")
        assert rtnetlink.parse_link(self.link(flags=0x1042)) == expected

    @pytest.mark.parametrize(
        ("kind", "expected"),
        [(1, True), (32, False), (768, False), (772, False), (65534, False)],
        ids=["ethernet", "infiniband", "tunnel", "loopback", "none"],
    )
    def test_a_link_is_ethernet_or_not(self, kind, expected):
        assert rtnetlink.parse_link(self.link(kind=kind)).is_ethernet is expected

    def test_an_alias_is_parsed(self):
        assert rtnetlink.parse_link(self.link(("IFLA_IFALIAS", "purelb"))).alias == "purelb"

    @pytest.mark.parametrize(
        ("number", "state"), [(0, "unknown"), (2, "down"), (6, "up"), (7, "unknown")]
    )
    def test_the_operational_state_has_a_name(self, number, state):
        message = self.link()
        body = message.body + attribute(rtnetlink.IFLA_OPERSTATE, bytes([number]))
        assert rtnetlink.parse_link(message._replace(body=body)).state == state


def test_pyroute2_decodes_a_new_dummy():
    message = decoded(rtnetlink.build_dummy("kube-lb0", 42), ifinfmsg)
    header = message["header"]
    assert (header["type"], header["sequence_number"]) == (rtnetlink.RTM_NEWLINK, 42)
    assert header["flags"] == NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
    assert (message["index"], message["flags"], message["change"]) == (0, IFF_UP, IFF_UP)
    assert message.get_attr("IFLA_IFNAME") == "kube-lb0"
    assert message.get_attr("IFLA_LINKINFO").get_attr("IFLA_INFO_KIND") == "dummy"


def test_pyroute2_decodes_a_new_alias():
    message = decoded(rtnetlink.build_alias("kube-lb0", "purelb", 42), ifinfmsg)
    header = message["header"]
    assert (header["type"], header["sequence_number"]) == (rtnetlink.RTM_NEWLINK, 42)
    assert header["flags"] == NLM_F_REQUEST | NLM_F_ACK
    assert (message["index"], message["change"]) == (0, 0)
    assert message.get_attr("IFLA_IFNAME") == "kube-lb0"
    assert message.get_attr("IFLA_IFALIAS") == "purelb"


def test_pyroute2_decodes_the_removal_of_a_link():
    message = decoded(rtnetlink.build_delete_link(7, 42), ifinfmsg)
    header = message["header"]
    assert (header["type"], header["sequence_number"]) == (rtnetlink.RTM_DELLINK, 42)
    assert header["flags"] == NLM_F_REQUEST | NLM_F_ACK
    assert message["index"] == 7


def test_pyroute2_decodes_the_question_for_one_link():
    message = decoded(rtnetlink.build_get_link(7, 42), ifinfmsg)
    header = message["header"]
    assert (header["type"], header["sequence_number"]) == (rtnetlink.RTM_GETLINK, 42)
    assert header["flags"] == NLM_F_REQUEST | NLM_F_ACK
    assert message["index"] == 7


@pytest.mark.parametrize("on", [True, False])
def test_promote_secondaries_is_set_and_nothing_else(on):
    """In the form of the kernel's inet_set_link_af, which pyroute2 does not decode."""
    (message,) = rtnetlink.parse_messages(rtnetlink.build_promote(7, 42, on=on))
    assert (message.kind, message.sequence) == (rtnetlink.RTM_SETLINK, 42)
    assert message.flags == NLM_F_REQUEST | NLM_F_ACK
    setting = attribute(20, struct.pack("=I", on))
    assert message.body == struct.pack("=BxHiII", 0, 0, 7, 0, 0) + attribute(
        26, attribute(2, attribute(1, setting))
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ([0] * 19 + [1, 0], True),
        ([1] * 19 + [0, 1], False),
        ([1] * 19, False),
        (None, False),
    ],
    ids=["on", "off", "unknown to this kernel", "no settings"],
)
def test_promote_secondaries_is_the_twentieth_setting(settings, expected):
    values = b"" if settings is None else struct.pack(f"={len(settings)}I", *settings)
    inside = attribute(1, values) if values else b""
    body = struct.pack("=BxHiII", 0, 1, 7, 0, 0) + attribute(26, attribute(2, inside))
    message = rtnetlink.Message(rtnetlink.RTM_NEWLINK, 0, 1, body)
    assert rtnetlink.parse_promotes(message) is expected


@pytest.mark.parametrize(
    ("kind", "decoder"),
    [
        (rtnetlink.RTM_GETLINK, ifinfmsg),
        (rtnetlink.RTM_GETADDR, ifaddrmsg),
        (rtnetlink.RTM_GETROUTE, rtmsg),
    ],
)
def test_pyroute2_decodes_the_request_for_a_dump(kind, decoder):
    data = rtnetlink.build_dump(kind, 42)
    header = decoded(data, decoder)["header"]
    assert (header["type"], header["sequence_number"]) == (kind, 42)
    assert header["flags"] == NLM_F_REQUEST | NLM_F_DUMP
    assert header["length"] == len(data)


class TestReplies:
    def datagram(self, *messages, sequence=1):
        return b"".join(
            struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body
            for kind, flags, body in messages
        )

    A, B = (20, 2, b"aaaa"), (20, 2, b"bbbb")
    DONE = (rtnetlink.NLMSG_DONE, 2, bytes(4))
    INTERRUPTED = 0x10

    def read(self, *datagrams, **options):
        reply = rtnetlink.read_reply(iter(datagrams).__next__, 1, **options)
        return [message.body for message in reply.messages], *reply[1:]

    def test_a_dump_ends_with_done(self):
        first, second = self.datagram(self.A), self.datagram(self.B, self.DONE, self.A)
        assert self.read(first, second, first) == ([b"aaaa", b"bbbb"], 0, False)

    @pytest.mark.parametrize("code", [0, 1])
    def test_a_reply_ends_with_an_error_or_acknowledgement(self, code):
        error = (rtnetlink.NLMSG_ERROR, 0, struct.pack("=i", -code))
        assert self.read(self.datagram(self.A, error, self.B)) == ([b"aaaa"], code, False)

    def test_other_replies_are_ignored(self):
        late = self.datagram(self.B, self.DONE, sequence=7)
        assert self.read(late, self.datagram(self.A, self.DONE)) == ([b"aaaa"], 0, False)

    def test_an_interrupted_dump_is_marked(self):
        flagged = (20, 2 | self.INTERRUPTED, b"aaaa")
        assert self.read(self.datagram(flagged, self.B, self.DONE))[2]
        assert self.read(self.datagram(self.A, (3, 2 | self.INTERRUPTED, bytes(4))))[2]

    def test_only_wanted_messages_are_kept(self):
        dump = self.datagram(self.A, self.B, self.DONE)
        assert self.read(dump, keep=lambda message: message.body != b"aaaa")[0] == [b"bbbb"]

    def test_what_receiving_raises_is_raised(self):
        with pytest.raises(StopIteration):
            self.read(self.datagram(self.A))


class TestDatagrams:
    ONE = rtnetlink.build_dump(rtnetlink.RTM_GETADDR, 1)
    TWO = rtnetlink.build_delete_link(7, 2)

    def test_a_datagram_is_split_into_its_messages(self):
        first, second = rtnetlink.parse_messages(self.ONE + self.TWO)
        assert (first.kind, first.flags, first.sequence) == (
            rtnetlink.RTM_GETADDR,
            NLM_F_REQUEST | NLM_F_DUMP,
            1,
        )
        assert (second.kind, second.sequence, second.body) == (
            rtnetlink.RTM_DELLINK,
            2,
            self.TWO[16:],
        )

    def test_messages_start_at_multiples_of_four(self):
        odd = struct.pack("=IHHII", 17, 3, 0, 1, 0) + b"x" + bytes(3)
        assert [m.body for m in rtnetlink.parse_messages(odd + odd[:17])] == [b"x", b"x"]

    @pytest.mark.parametrize("cut", [10, 16, 23])
    def test_a_truncated_datagram_does_not_crash(self, cut):
        assert list(rtnetlink.parse_messages(self.ONE[:cut])) == []

    def test_messages_before_a_truncated_one_are_parsed(self):
        (only,) = rtnetlink.parse_messages(self.ONE + self.TWO[:-1])
        assert only.sequence == 1

    def test_a_length_below_the_header_ends_the_datagram(self):
        assert list(rtnetlink.parse_messages(bytes(64))) == []

    @pytest.mark.parametrize("code", [0, 17])
    def test_an_error_message_holds_an_errno(self, code):
        message = Message(rtnetlink.NLMSG_ERROR, 0, 1, struct.pack("=i", -code) + bytes(16))
        assert rtnetlink.parse_error(message) == code

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import ip_address

import pytest
from pyroute2.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REQUEST
from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from purelb.core.model import InterfaceAddress, Link
from purelb.core.node.plan import Put
from purelb_agent.node import rtnetlink

BOTH = pytest.mark.parametrize(
    ("vip", "prefixlen", "family"),
    [(ip_address("172.28.1.220"), 24, 2), (ip_address("fd28::220"), 64, 10)],
    ids=["v4", "v6"],
)
NOPREFIXROUTE, NODAD, TENTATIVE, DADFAILED, DEPRECATED = 0x200, 0x02, 0x40, 0x08, 0x20
IFF_UP = 0x1


def decoded(data, kind=ifaddrmsg):
    """What an independent library reads in our bytes."""
    message = kind(data)
    message.decode()
    return message


def encoded(kind, number, header, attributes):
    """What an independent library writes for us to read."""
    message = kind()
    message["header"]["type"] = number
    for field, value in header.items():
        message[field] = value
    message["attrs"] = attributes
    message.encode()
    (read,) = rtnetlink.parse_messages(bytes(message.data))
    return read


@BOTH
class TestAddresses:
    @pytest.mark.parametrize("no_dad", [True, False])
    def test_put_says_what_pyroute2_reads(self, vip, prefixlen, family, no_dad):
        put = Put(7, vip, prefixlen, 9, 8, no_prefix_route=True, no_dad=no_dad, is_new=True)
        message = decoded(rtnetlink.build_put(put, 42))
        assert (message["family"], message["prefixlen"], message["index"]) == (family, prefixlen, 7)
        assert message["header"]["sequence_number"] == 42
        assert message.get_attr("IFA_LOCAL") == message.get_attr("IFA_ADDRESS") == str(vip)
        info = message.get_attr("IFA_CACHEINFO")
        assert (info["ifa_valid"], info["ifa_preferred"]) == (9, 8)
        expected = NOPREFIXROUTE | (NODAD if no_dad else 0)
        assert message.get_attr("IFA_FLAGS") == expected

    def test_remove_says_what_pyroute2_reads(self, vip, prefixlen, family):
        message = decoded(rtnetlink.build_remove(InterfaceAddress(7, vip, prefixlen), 1))
        assert message["header"]["type"] == rtnetlink.RTM_DELADDR
        assert (message["family"], message["prefixlen"], message["index"]) == (family, prefixlen, 7)
        assert message.get_attr("IFA_LOCAL") == str(vip)

    @pytest.mark.parametrize(
        ("flags", "expected"),
        [
            (0, {}),
            (TENTATIVE, {"tentative": True}),
            (TENTATIVE | DADFAILED, {"tentative": True, "dad_failed": True}),
            (DEPRECATED | NOPREFIXROUTE, {"deprecated": True, "no_prefix_route": True}),
        ],
    )
    def test_what_pyroute2_writes_is_read(self, vip, prefixlen, family, flags, expected):
        message = encoded(
            ifaddrmsg,
            rtnetlink.RTM_NEWADDR,
            {"family": family, "prefixlen": prefixlen, "index": 7},
            [
                ("IFA_ADDRESS", str(vip)),
                ("IFA_FLAGS", flags),
                ("IFA_CACHEINFO", {"ifa_preferred": 5, "ifa_valid": 9, "cstamp": 0, "tstamp": 0}),
            ],
        )
        read = rtnetlink.parse_address(message, now=100.0)
        assert read == InterfaceAddress(7, vip, prefixlen, 109.0, 105.0, **expected)

    def test_an_address_without_end_has_no_expiry(self, vip, prefixlen, family):
        forever = 0xFFFFFFFF
        message = encoded(
            ifaddrmsg,
            rtnetlink.RTM_NEWADDR,
            {"family": family, "prefixlen": prefixlen, "index": 7},
            [
                ("IFA_ADDRESS", str(vip)),
                (
                    "IFA_CACHEINFO",
                    {"ifa_preferred": forever, "ifa_valid": forever, "cstamp": 0, "tstamp": 0},
                ),
            ],
        )
        assert rtnetlink.parse_address(message, now=100.0).expires_at is None


def test_a_point_to_point_address_is_its_own_end():
    message = encoded(
        ifaddrmsg,
        rtnetlink.RTM_NEWADDR,
        {"family": 2, "prefixlen": 32, "index": 7},
        [("IFA_ADDRESS", "192.0.2.2"), ("IFA_LOCAL", "192.0.2.1")],
    )
    assert str(rtnetlink.parse_address(message, now=0.0).address) == "192.0.2.1"


def test_a_link_is_read():
    message = encoded(
        ifinfmsg,
        rtnetlink.RTM_NEWLINK,
        {"index": 3, "flags": 0x1043},
        [("IFLA_IFNAME", "eth0"), ("IFLA_ADDRESS", "02:1b:00:00:0b:01")],
    )
    mac = bytes.fromhex("021b00000b01")
    assert rtnetlink.parse_link(message, {4: 0}) == Link(3, "eth0", mac, default_metrics={4: 0})


def test_the_mark_of_a_link_is_read():
    message = encoded(
        ifinfmsg,
        rtnetlink.RTM_NEWLINK,
        {"index": 3, "flags": 0x1},
        [("IFLA_IFNAME", "kube-lb0"), ("IFLA_IFALIAS", "purelb")],
    )
    assert rtnetlink.parse_link(message, {}) == Link(3, "kube-lb0", alias="purelb")


def test_a_new_dummy_says_what_pyroute2_reads():
    message = decoded(rtnetlink.build_dummy("kube-lb0", 42), ifinfmsg)
    header = message["header"]
    assert (header["type"], header["sequence_number"]) == (rtnetlink.RTM_NEWLINK, 42)
    assert header["flags"] == NLM_F_REQUEST | NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
    assert (message["index"], message["flags"], message["change"]) == (0, IFF_UP, IFF_UP)
    assert message.get_attr("IFLA_IFNAME") == "kube-lb0"
    assert message.get_attr("IFLA_LINKINFO").get_attr("IFLA_INFO_KIND") == "dummy"


def test_an_alias_says_what_pyroute2_reads():
    message = decoded(rtnetlink.build_alias("kube-lb0", "purelb", 42), ifinfmsg)
    header = message["header"]
    assert (header["type"], header["sequence_number"]) == (rtnetlink.RTM_NEWLINK, 42)
    assert header["flags"] == NLM_F_REQUEST | NLM_F_ACK
    assert (message["index"], message["change"]) == (0, 0)
    assert message.get_attr("IFLA_IFNAME") == "kube-lb0"
    assert message.get_attr("IFLA_IFALIAS") == "purelb"


def test_a_deleted_link_says_what_pyroute2_reads():
    message = decoded(rtnetlink.build_delete_link(7, 42), ifinfmsg)
    header = message["header"]
    assert (header["type"], header["sequence_number"]) == (rtnetlink.RTM_DELLINK, 42)
    assert header["flags"] == NLM_F_REQUEST | NLM_F_ACK
    assert message["index"] == 7


@pytest.mark.parametrize(("family", "version"), [(2, 4), (10, 6)], ids=["v4", "v6"])
class TestRoutes:
    def route(self, family, prefixlen=0, table=254, attributes=()):
        return encoded(
            rtmsg,
            rtnetlink.RTM_NEWROUTE,
            {"family": family, "dst_len": prefixlen, "table": table},
            [("RTA_OIF", 3), *attributes],
        )

    def test_a_default_route_is_read(self, family, version):
        message = self.route(family, attributes=[("RTA_PRIORITY", 100)])
        assert rtnetlink.parse_default_route(message) == rtnetlink.DefaultRoute(version, 100, (3,))

    def test_a_route_without_a_metric_has_the_lowest(self, family, version):
        assert rtnetlink.parse_default_route(self.route(family)).metric == 0

    def test_other_routes_and_tables_do_not_count(self, family, version):
        assert rtnetlink.parse_default_route(self.route(family, prefixlen=8)) is None
        assert rtnetlink.parse_default_route(self.route(family, table=100)) is None


def test_a_default_route_over_several_interfaces_counts_for_each():
    message = encoded(
        rtmsg,
        rtnetlink.RTM_NEWROUTE,
        {"family": 2, "dst_len": 0, "table": 254},
        [("RTA_MULTIPATH", [{"oif": 3}, {"oif": 5}])],
    )
    assert rtnetlink.parse_default_route(message).links == (3, 5)


def test_a_truncated_datagram_does_not_crash():
    whole = rtnetlink.build_dump(rtnetlink.RTM_GETADDR, 1)
    assert list(rtnetlink.parse_messages(whole[:10])) == []

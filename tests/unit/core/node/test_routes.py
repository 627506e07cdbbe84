# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Routes as pyroute2 encodes them; by hand what it cannot."""

from __future__ import annotations

import struct
from ipaddress import ip_address, ip_network

import pytest

pytest.importorskip("pyroute2")
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from purelb.core.node import routes, rtnetlink
from purelb.core.node.routes import DefaultRoute
from tests.support.core.netlink_messages import attribute, encoded

FIRST = {4: ip_address("192.0.2.1"), 6: ip_address("fe80::1")}
SECOND = {4: ip_address("192.0.2.2"), 6: ip_address("2001:db8::2")}


@pytest.mark.parametrize(("family", "version"), [(2, 4), (10, 6)], ids=["v4", "v6"])
class TestRoutes:
    def route(self, family, *attributes, prefixlen=0, table=254):
        return encoded(
            rtmsg,
            rtnetlink.RTM_NEWROUTE,
            {"family": family, "dst_len": prefixlen, "table": table},
            list(attributes),
        )

    def test_a_default_route_is_parsed(self, family, version):
        message = self.route(family, ("RTA_OIF", 3), ("RTA_PRIORITY", 100))
        assert routes.is_default_route(message)
        assert routes.parse_default_route(message) == DefaultRoute(version, 100, ((3, None),))

    def test_a_route_without_a_metric_has_the_lowest(self, family, version):
        assert routes.parse_default_route(self.route(family, ("RTA_OIF", 3))).metric == 0

    def test_other_routes_and_tables_do_not_count(self, family, version):
        other = self.route(family, ("RTA_OIF", 3), prefixlen=8)
        assert not routes.is_default_route(other)
        assert routes.parse_default_route(other) is None
        assert routes.parse_default_route(self.route(family, ("RTA_OIF", 3), table=100)) is None

    def test_a_table_above_255_does_not_count(self, family, version):
        message = self.route(family, ("RTA_OIF", 3), ("RTA_TABLE", 1000))
        assert routes.parse_default_route(message) is None

    def test_a_route_without_an_interface_does_not_count(self, family, version):
        assert routes.parse_default_route(self.route(family)) is None

    def test_a_multipath_route_has_each_of_its_hops(self, family, version):
        gateways = {3: FIRST[version], 5: SECOND[version], 7: None}
        hops = b""
        for index, gateway in gateways.items():
            added = attribute(routes.RTA_GATEWAY, gateway.packed) if gateway else b""
            hops += struct.pack("=HBBi", 8 + len(added), 0, 0, index) + added
        message = self.route(family)
        body = message.body + attribute(routes.RTA_MULTIPATH, hops)
        route = routes.parse_default_route(message._replace(body=body))
        assert route == DefaultRoute(version, 0, tuple(gateways.items()))

    def test_gateways_are_known_by_interface(self, family, version):
        one, other = FIRST[version], SECOND[version]
        found = routes.default_routes(
            [
                self.route(family, ("RTA_OIF", 2), ("RTA_GATEWAY", str(one))),
                self.route(family, ("RTA_OIF", 2), ("RTA_GATEWAY", str(other))),
                self.route(family, ("RTA_OIF", 4), ("RTA_GATEWAY", str(one)), table=100),
                self.route(family, ("RTA_OIF", 5)),
            ]
        )
        assert routes.gateways(found) == {2: {one, other}}

    def test_what_is_no_address_is_no_gateway(self, family, version):
        message = self.route(family, ("RTA_OIF", 2))
        for kind, data in (
            (routes.RTA_GATEWAY, b"abc"),
            (routes.RTA_VIA, b"\x0a\0"),
        ):
            body = message.body + attribute(kind, data)
            route = routes.parse_default_route(message._replace(body=body))
            assert route.hops == ((2, None),)

    def test_the_lowest_metric_of_an_interface_is_its_metric(self, family, version):
        found = [
            self.route(family, ("RTA_OIF", 2), ("RTA_PRIORITY", metric)) for metric in (9, 3, 5)
        ]
        found.append(self.route(family, ("RTA_OIF", 4)))
        found.append(self.route(family, ("RTA_OIF", 4), prefixlen=8))
        metrics = routes.default_metrics(routes.default_routes(found))
        assert metrics == {2: {version: 3}, 4: {version: 0}}


def test_metrics_are_kept_by_version():
    found = [
        encoded(
            rtmsg,
            rtnetlink.RTM_NEWROUTE,
            {"family": family, "dst_len": 0, "table": 254},
            [("RTA_OIF", 2), ("RTA_PRIORITY", metric)],
        )
        for family, metric in ((2, 100), (10, 1024))
    ]
    metrics = routes.default_metrics(routes.default_routes(found))
    assert metrics == {2: {4: 100, 6: 1024}}


def test_gateway_of_an_ipv4_route_may_be_an_ipv6_address():
    via = {"family": 10, "addr": "fe80::1"}
    message = encoded(
        rtmsg,
        rtnetlink.RTM_NEWROUTE,
        {"family": 2, "dst_len": 0, "table": 254},
        [("RTA_OIF", 2), ("RTA_VIA", via)],
    )
    route = routes.parse_default_route(message)
    assert route.hops == ((2, ip_address("fe80::1")),)


def test_a_multipath_route_encoded_by_pyroute2_is_parsed():
    message = encoded(
        rtmsg,
        rtnetlink.RTM_NEWROUTE,
        {"family": 2, "dst_len": 0, "table": 254},
        [("RTA_MULTIPATH", [{"oif": 3}, {"oif": 5}])],
    )
    assert routes.parse_default_route(message).hops == ((3, None), (5, None))


class TestOnLinkRoutes:
    def route(self, network, *attributes, **head):
        wanted = ip_network(network)
        is_v4 = wanted.version == 4
        fields = {
            "family": 2 if is_v4 else 10,
            "dst_len": wanted.prefixlen,
            "table": 254,
            "proto": routes.RTPROT_STATIC,
            "scope": routes.RT_SCOPE_LINK if is_v4 else routes.RT_SCOPE_UNIVERSE,
            "type": routes.RTN_UNICAST,
            **head,
        }
        known = [("RTA_DST", str(wanted.network_address)), ("RTA_OIF", 3), *attributes]
        return encoded(rtmsg, rtnetlink.RTM_NEWROUTE, fields, known)

    @pytest.mark.parametrize("network", ["192.0.2.0/26", "2001:db8:1::/64"])
    @pytest.mark.parametrize("protocol", [3, 4, 9, 16], ids=["boot", "static", "ra", "dhcp"])
    def test_show_an_interface_and_its_subnet(self, network, protocol):
        message = self.route(network, proto=protocol)
        assert routes.is_of_interest(message)
        assert routes.parse_on_link_route(message) == (3, ip_network(network))
        more = self.route("10.1.0.0/16"), self.route("0.0.0.0/0")
        found = routes.on_link_routes([message, self.route(network), *more])
        assert found == {3: {ip_network(network), ip_network("10.1.0.0/16")}}

    def test_the_kernel_adds_them_for_router_advertisements_only(self):
        kernel = {"proto": routes.RTPROT_KERNEL}
        assert routes.parse_on_link_route(self.route("2001:db8:1::/64", **kernel))
        assert routes.parse_on_link_route(self.route("192.0.2.0/26", **kernel)) is None

    @pytest.mark.parametrize(
        "network",
        [
            "0.0.0.0/0",
            "::/0",
            "192.0.2.1/32",
            "2001:db8::1/128",
            "169.254.0.0/16",
            "fe80::/64",
            "224.0.0.0/4",
            "ff00::/8",
        ],
    )
    def test_other_destinations_are_no_subnets(self, network):
        assert routes.parse_on_link_route(self.route(network)) is None

    @pytest.mark.parametrize("network", ["192.0.2.0/26", "2001:db8:1::/64"])
    def test_other_routes_are_none(self, network):
        gateway = ("RTA_GATEWAY", str(ip_network(network)[1]))
        others = [
            self.route(network, gateway),
            self.route(network, table=100),
            self.route(network, ("RTA_TABLE", 1000)),
            self.route(network, ("RTA_MULTIPATH", [{"oif": 5}])),
            # bird, zebra, a CNI
            *(self.route(network, proto=protocol) for protocol in (12, 11, 80)),
            # unreachable, blackhole, multicast
            *(self.route(network, type=kind) for kind in (7, 6, 5)),
        ]
        assert [routes.parse_on_link_route(other) for other in others] == [None] * len(others)

    def test_a_wide_scope_means_that_they_lead_further(self):
        wide = self.route("192.0.2.0/26", scope=routes.RT_SCOPE_UNIVERSE)
        assert routes.parse_on_link_route(wide) is None
        assert not routes.is_of_interest(wide)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Default routes as pyroute2 encodes them; by hand what it cannot."""

from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest

pytest.importorskip("pyroute2")
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from purelb.core.node import default_routes as routes
from purelb.core.node import rtnetlink
from purelb.core.node.default_routes import DefaultRoute
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

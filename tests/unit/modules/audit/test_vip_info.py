# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from ipaddress import ip_address

import pytest

from purelb.audit import vip_info
from purelb.audit.netlink import Interface
from purelb.core.audit.evidence import LinkSettings
from purelb.core.errors import PureLBError, SettingError
from purelb.core.node.rtnetlink import (
    IFA_F_NODAD,
    IFA_F_NOPREFIXROUTE,
    IFA_F_PERMANENT,
    IFA_F_TENTATIVE,
    AddressMessage,
)


def held(index, address, prefixlen, valid, preferred, flags):
    return AddressMessage(index, ip_address(address), prefixlen, valid, preferred, flags)


OWN = held(2, "172.28.1.11", 24, None, None, IFA_F_PERMANENT)
OWN6 = held(2, "fd28::11", 64, None, None, IFA_F_NODAD | IFA_F_PERMANENT)
LINK_LOCAL = held(2, "fe80::1", 64, None, None, IFA_F_PERMANENT)
VIP = held(2, "172.28.1.220", 24, 8, 7, IFA_F_NOPREFIXROUTE)
VIP6 = held(2, "fd28::220", 64, 8, 7, IFA_F_TENTATIVE | IFA_F_NOPREFIXROUTE)._replace(protocol=112)
MAC = b"\x02\0\0\0\0\x01"


def interface(index, name, *addresses, metrics=None):
    on_it = tuple(address._replace(link=index) for address in addresses)
    return Interface(index, name, MAC, True, "up", metrics or {}, on_it)


@pytest.fixture
def kernel(monkeypatch):
    """Replaces the interfaces of the kernel by those of the test."""

    def have(*found):
        monkeypatch.setattr(vip_info, "interfaces", lambda: list(found))

    have(interface(2, "eth0", OWN, OWN6, VIP, VIP6, metrics={4: 0, 6: 1024}))
    return have


def seen(**params):
    return vip_info.vip_info({"vips": None, "pools": None, "interfaces": None, **params})


@pytest.mark.parametrize(
    ("params", "expected"),
    [
        pytest.param({"vips": ["172.28.1.220"]}, ["172.28.1.220"], id="v4"),
        pytest.param({"vips": ["FD28:0::220"]}, ["fd28::220"], id="v6, spelt otherwise"),
        pytest.param({"pools": ["172.28.1.220-172.28.1.229"]}, ["172.28.1.220"], id="v4 range"),
        pytest.param({"pools": ["fd28::200/120"]}, ["fd28::220"], id="v6 CIDR"),
        pytest.param(
            {"vips": ["fd28::220"], "pools": ["172.28.1.220-172.28.1.229"]},
            ["172.28.1.220", "fd28::220"],
            id="both",
        ),
        pytest.param({"vips": []}, [], id="nothing"),
    ],
)
def test_only_selected_addresses_are_listed(kernel, params, expected):
    assert [vip["address"] for vip in seen(**params)["vips"]] == expected


def test_a_listed_address_has_all_its_properties(kernel):
    (vip,) = seen(vips=["fd28::220"])["vips"]
    assert vip == {
        "address": "fd28::220",
        "family": "IPv6",
        "interface": "eth0",
        "prefix_length": 64,
        "valid_lifetime": 8,
        "preferred_lifetime": 7,
        "flags": ["tentative", "noprefixroute"],
        "protocol": 112,
        "mac": "02:00:00:00:00:01",
        "up": True,
        "state": "up",
    }


def test_subnets_come_from_addresses_that_are_not_vips(kernel):
    vip = VIP._replace(prefixlen=28)
    kernel(interface(2, "eth0", OWN, OWN6, LINK_LOCAL, vip, metrics={4: 0}))
    (eth0,) = seen(vips=["172.28.1.220"])["interfaces"]
    assert eth0["subnets"] == ["172.28.1.0/24", "fd28::/64"]
    assert eth0["default_metrics"] == {"IPv4": 0}


def test_what_an_agent_put_is_no_subnet_although_it_was_not_requested(kernel):
    kernel(interface(2, "eth0", OWN, OWN6, VIP6._replace(prefixlen=128)))
    (eth0,) = seen(vips=["172.28.1.220"], interfaces=["eth0"])["interfaces"]
    assert eth0["subnets"] == ["172.28.1.0/24", "fd28::/64"]


@pytest.mark.parametrize(
    ("patterns", "names"),
    [
        pytest.param(None, ["eth0", "up0", "kube-lb0"], id="of interest"),
        pytest.param(["pod*"], ["pod7"], id="by name"),
        pytest.param(["kube-ipvs0"], ["kube-ipvs0"], id="that of kube-proxy"),
        pytest.param(["kube-d*"], ["kube-dummy-if"], id="that of kube-router"),
    ],
)
def test_interfaces_to_pods_are_omitted_unless_named(kernel, patterns, names):
    kernel(
        interface(2, "eth0", OWN),
        interface(3, "up0", LINK_LOCAL, metrics={6: 1}),
        interface(4, "pod7", LINK_LOCAL),
        interface(5, "kube-lb0", VIP),
        interface(6, "kube-ipvs0", VIP),
        interface(7, "kube-dummy-if", VIP),
    )
    found = seen(vips=["172.28.1.220"], interfaces=patterns)["interfaces"]
    assert [each["name"] for each in found] == names


@pytest.mark.parametrize(
    ("params", "words"),
    [
        ({"vips": ["172.28.1"]}, "vips: '172.28.1' is not an address"),
        ({"pools": ["172.28.1.5/24"]}, "pools: '172.28.1.5/24' is not a CIDR or first-last"),
        ({"pools": ["a-b"]}, "pools: 'a-b' is not a CIDR or first-last"),
    ],
)
def test_an_error_names_the_malformed_option(kernel, params, words):
    with pytest.raises(SettingError, match=words):
        seen(**params)


def test_settings_are_the_larger_of_an_interfaces_own_and_that_of_all(
    kernel, monkeypatch, tmp_path
):
    for name, arp_ignore, rp_filter in (("all", 1, 0), ("eth0", 0, 2)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "arp_ignore").write_text(f"{arp_ignore}\n")
        (tmp_path / name / "rp_filter").write_text(f"{rp_filter}\n")
    monkeypatch.setattr(vip_info, "_SETTINGS", tmp_path)
    kernel(interface(2, "eth0", OWN), interface(3, "eth1", OWN), interface(6, "kube-ipvs0", VIP))
    result = seen(vips=["172.28.1.220"])
    found = [(i["arp_ignore"], i["rp_filter"]) for i in result["interfaces"]]
    assert found == [(1, 2), (None, None)]
    read = vip_info.observation_of("n1", result)
    assert read.settings == {2: LinkSettings(1, 2), 3: LinkSettings()}
    assert read.proxies == ("kube-ipvs0",)


def test_a_result_is_read_back_unchanged(kernel):
    result = seen(vips=["172.28.1.220"])
    read = vip_info.observation_of("n1", result)
    (link,) = read.links
    assert (link.index, link.name, link.mac, link.is_up) == (2, "eth0", MAC, True)
    assert link.default_metrics == {4: 0, 6: 1024}
    own, _own6, vip, vip6 = read.addresses
    assert (own.expires_at, own.tentative) == (None, False)
    assert vip.expires_at == pytest.approx(result["time"] + 8)
    assert vip.preferred_until == pytest.approx(result["time"] + 7)
    assert (vip.no_prefix_route, vip6.tentative) == (True, True)


@pytest.mark.parametrize("result", [{}, {"time": 1, "interfaces": [{}]}, {"failed": True}, None])
def test_an_error_names_the_node_whose_result_is_malformed(result):
    with pytest.raises(PureLBError, match="nodes: the value for n1 is not a result"):
        vip_info.observation_of("n1", result)

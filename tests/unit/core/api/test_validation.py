# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Configuration that is about to be written: what is refused, and what is only odd."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from purelb.core.addresses import parse_address
from purelb.core.api.validation import (
    Surroundings,
    agent_warnings,
    check_agent,
    check_group,
    deselected_warnings,
    group_warnings,
)
from purelb.core.errors import ObjectError
from purelb.core.node.configuration import NodeConfig, Requirement

V4 = {"pool": "10.0.0.10-10.0.0.20", "subnet": "10.0.0.0/24"}
V6 = {"pool": "fd00::10-fd00::20", "subnet": "fd00::/64"}


def group(name="one", **spec):
    return {
        "kind": "ServiceGroup",
        "metadata": {"namespace": "purelb-system", "name": name},
        "spec": spec,
    }


def agent(name="one", *, selector=None, **local):
    return {
        "kind": "LBNodeAgent",
        "metadata": {"namespace": "purelb-system", "name": name},
        "spec": {"local": local, **({"nodeSelector": selector} if selector else {})},
    }


def local(pool, subnet):
    version = "v6pool" if ":" in pool else "v4pool"
    return {"local": {version: {"pool": pool, "subnet": subnet}}}


@pytest.mark.parametrize("source", ["local", "remote"])
def test_ranges_of_both_families_are_read(source):
    read = check_group(group(**{source: {"v4pool": V4, "v6pools": [V6]}}))
    assert [str(pool_range) for pool_range in read.ranges] == [V4["pool"], V6["pool"]]
    assert read.pool_type.value == source


@pytest.mark.parametrize(
    "spec",
    [
        {"netbox": {"url": "https://netbox.example.com", "tenant": "a", "aggregation": "/32"}},
        {"netbox": {"url": "http://[fd00::1]:8000", "tenant": "a", "allowHTTP": True}},
        {"external": {"provider": "a", "announce": "local", "socket": "/run/a.sock"}},
        {"external": {"provider": "a", "announce": "local"}, "namespaces": ["team-a", "b"]},
    ],
)
def test_addresses_that_others_give_out_have_no_ranges(spec):
    assert check_group(group(**spec)).ranges == ()


@pytest.mark.parametrize(
    ("spec", "field", "problem"),
    [
        pytest.param(local("10.0.0.9-10.0.0.1", "10.0.0.0/24"), "local.v4pool", "ends", id="v4"),
        pytest.param(local("fd00::9-fd00::1", "fd00::/64"), "local.v6pool", "ends", id="v6"),
        pytest.param(local("10.0.1.0/28", "10.0.0.0/24"), "local.v4pool", "inside", id="outside"),
        pytest.param(local("fd00:1::/120", "fd00::/64"), "local.v6pool", "inside", id="outside 6"),
        pytest.param(local("ten", "10.0.0.0/24"), "local.v4pool", "192.168.1.240-", id="word"),
        pytest.param(local("fd00::x/64", "fd00::/64"), "local.v6pool", "fd00:1::100-", id="word 6"),
        pytest.param(
            {"remote": {"v4pools": [V4, V6]}}, "remote.v4pools[1]", "must hold IPv4", id="v6 in v4"
        ),
        pytest.param(
            {"remote": {"v6pools": [V6, V4]}}, "remote.v6pools[1]", "must hold IPv6", id="v4 in v6"
        ),
        pytest.param(
            {"remote": {"v4pools": [V4, {**V4, "pool": "10.0.0.1-10.0.0.10"}]}},
            "remote",
            "its ranges 10.0.0.1-10.0.0.10 and 10.0.0.10-10.0.0.20 overlap: shorten one of",
            id="overlap",
        ),
        pytest.param(
            {"local": {"v6pools": [V6, {**V6, "pool": "fd00::18-fd00::1a"}]}},
            "local",
            "its ranges fd00::10-fd00::20 and fd00::18-fd00::1a overlap: shorten one of",
            id="overlap 6",
        ),
        pytest.param({"local": {"v4pools": []}}, "local", "has no range", id="nothing"),
        pytest.param(
            {"local": {"multiPool": True, "balancePools": True, "v4pool": V4}},
            "local.multiPool",
            "keep one",
            id="both ways to choose",
        ),
        pytest.param(
            {"remote": {"v4pool": V4}, "enforceNamespaces": True},
            "enforceNamespaces",
            "list them",
            id="boundary around nothing",
        ),
        pytest.param(
            {"remote": {"v4pool": V4}, "namespaceDefault": True},
            "namespaceDefault",
            "list them",
            id="default of nothing",
        ),
        pytest.param(
            {"remote": {"v4pool": V4}, "namespaces": ["a", "B"]}, "namespaces[1]", "'B'", id="name"
        ),
        pytest.param(
            {"remote": {"v4pool": V4}, "namespaces": ["a", "a"]}, "namespaces[1]", "twice", id="two"
        ),
        pytest.param(
            {"netbox": {"url": "netbox", "tenant": "a"}}, "netbox.url", "a URL such as", id="url"
        ),
        pytest.param(
            {"netbox": {"url": "http://n", "tenant": "a"}},
            "netbox.url",
            "set spec.netbox.allowHTTP to true",
            id="token in clear",
        ),
        pytest.param(
            {"netbox": {"url": "https://n", "tenant": "a", "aggregation": "32"}},
            "netbox.aggregation",
            "'default' or a mask",
            id="netbox aggregation",
        ),
        pytest.param(
            {"external": {"provider": "a", "announce": "local", "socket": "a"}},
            "external.socket",
            "absolute path",
            id="socket",
        ),
    ],
)
def test_a_group_that_cannot_be_used_names_the_field_and_the_mend(spec, field, problem):
    with pytest.raises(ObjectError) as error:
        check_group(group(**spec))
    assert error.value.field == f"spec.{field}"
    assert problem in error.value.problem
    assert error.value.where == "ServiceGroup purelb-system/one"


def suspicions(body, *others, around=None):
    known = [check_group(other) for other in others]
    return list(group_warnings(check_group(body), known, around or Surroundings()))


@pytest.mark.parametrize(
    ("subnets", "expected"),
    [
        ((), 0),
        (("10.0.0.0/24", "fd00::/64"), 0),
        (("10.0.0.0/16", "fd00::/48"), 0),
        (("10.0.1.0/24",), 2),
    ],
    ids=["no Lease", "the same", "larger", "others"],
)
def test_ranges_in_the_subnet_of_no_node(subnets, expected):
    around = Surroundings(frozenset(map(ip_network, subnets)))
    found = suspicions(group(local={"v4pool": V4, "v6pool": V6}), around=around)
    assert len(found) == expected
    assert not suspicions(group(remote={"v4pool": V4}), around=around)
    if expected:
        assert found[0].startswith("no node is in 10.0.0.0/24, so none would announce addresses of")
        assert "the nodes are in 10.0.1.0/24" in found[0]


def test_ranges_with_addresses_of_others():
    taken = {
        parse_address("10.0.0.12"): "node n1",
        parse_address("10.0.0.11"): "another host",
        parse_address("10.0.0.21"): "node n2",
        parse_address("fd00::15"): "node n1",
    }
    first, second = suspicions(
        group(local={"v4pool": V4, "v6pool": V6}), around=Surroundings(taken=taken)
    )
    assert "that others have: 10.0.0.11 (another host), 10.0.0.12 (node n1): leave" in first
    assert "fd00::15 (node n1)" in second


def test_a_plain_group_is_not_suspicious():
    assert suspicions(group(local={"v4pool": V4, "v6pool": V6})) == []


@pytest.mark.parametrize(
    ("pool", "other"),
    [
        pytest.param(V4, {**V4, "pool": "10.0.0.20-10.0.0.30"}, id="v4"),
        pytest.param(V6, {**V6, "pool": "fd00::/122"}, id="v6"),
    ],
)
def test_an_overlap_names_both_groups_and_ranges(pool, other):
    family = "v6pool" if ":" in pool["pool"] else "v4pool"
    far = {"v4pool": {"pool": "10.9.0.0/28", "subnet": "10.9.0.0/24"}}
    # Two that overlap each other are no matter of this group.
    distant = [group("far", remote=far), group("further", remote=far)]
    (text,) = suspicions(
        group(local={family: pool}), *distant, group("two", remote={family: other})
    )
    assert f"{pool['pool']} of ServiceGroup one and " in text
    assert "of ServiceGroup two overlap, so the younger group is not used" in text


def serving(name, *namespaces, default=False):
    pool = {"pool": f"10.{len(name)}.0.0/28", "subnet": f"10.{len(name)}.0.0/24"}
    spec = {"remote": {"v4pool": pool}, "namespaces": namespaces, "namespaceDefault": default}
    return group(name, **spec)


def test_namespace_with_several_groups_and_no_default_is_a_warning():
    (text,) = suspicions(serving("one", "a", "b"), serving("three", "b", "c"))
    assert text.startswith("ServiceGroups one, three all serve namespace b: make one")
    assert suspicions(serving("one", "a", "b"), serving("three", "b", default=True)) == []


@pytest.mark.parametrize(
    ("pool", "subnet", "told"),
    [
        (
            "10.0.0.0/24",
            "10.0.0.0/24",
            ["10.0.0.0, which is", "10.0.0.255, the broadcast"],
        ),
        ("10.0.0.0/28", "10.0.0.0/24", ["10.0.0.0, which is the subnet"]),
        ("10.0.0.0/31", "10.0.0.0/31", []),
        ("fd00::/120", "fd00::/64", ["fd00::, which is the anycast"]),
        ("fd00::1-fd00::ffff", "fd00::/112", []),
        ("fd00::/127", "fd00::/127", []),
    ],
)
def test_reserved_addresses_in_local_pools_are_a_warning(pool, subnet, told):
    texts = suspicions(group(**local(pool, subnet)))
    assert len(texts) == len(told)
    assert all(part in text for part, text in zip(told, texts, strict=True))
    assert suspicions(group(remote=local(pool, subnet)["local"])) == []


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"localInterface": "eth[0-9]+", "interfaces": ["eth1"], "dummyInterface": "kube-lb1"},
        {"garpConfig": {"count": 10, "intervalMs": 100, "initialDelay": "5s"}},
        {"addressConfig": {"localInterface": {"validLifetime": 60, "preferredLifetime": 30}}},
        {"addressConfig": {"dummyInterface": {"validLifetime": 0, "preferredLifetime": 100}}},
    ],
)
def test_settings_within_their_limits_are_read(body):
    assert check_agent(agent(**body)).problem == ""


def test_an_object_without_settings_is_read():
    body = agent()
    del body["spec"]["local"]
    assert check_agent(body).local_interface == "default"


def expression(operator, *values):
    return {"key": "a", "operator": operator, **({"values": list(values)} if values else {})}


@pytest.mark.parametrize(
    ("settings", "field", "problem"),
    [
        ({"localInterface": "eth("}, "localInterface", "'eth(' is not a regular expression"),
        ({"interfaces": ["eth0", "a/b"]}, "interfaces[1]", "'a/b'"),
        ({"interfaces": ["abcdefghijklmnop"]}, "interfaces[0]", "1 to 15"),
        ({"dummyInterface": ""}, "dummyInterface", "1 to 15"),
        ({"garpConfig": {"count": 0}}, "garpConfig.count", "is 0; write 1 to 10"),
        ({"garpConfig": {"intervalMs": 99}}, "garpConfig.intervalMs", "write 0.1 s to 5 s"),
        ({"garpConfig": {"interval": "6s"}}, "garpConfig.interval", "is 6 s; write"),
        ({"garpConfig": {"interval": "soon"}}, "garpConfig.interval", "write for example 10s"),
        ({"garpConfig": {"delayMs": -1}}, "garpConfig.delayMs", "write 0 s to 5 s"),
        ({"garpConfig": {"initialDelay": "5.1s"}}, "garpConfig.initialDelay", "is 5.1 s"),
        (
            {"addressConfig": {"localInterface": {"validLifetime": 59}}},
            "addressConfig.localInterface.validLifetime",
            "write 0 (no limit) or 60",
        ),
        (
            {"addressConfig": {"dummyInterface": {"validLifetime": -1}}},
            "addressConfig.dummyInterface.validLifetime",
            "is -1",
        ),
        (
            {"addressConfig": {"localInterface": {"preferredLifetime": 301}}},
            "addressConfig.localInterface.preferredLifetime",
            "write 0 to 300",
        ),
        (
            {"addressConfig": {"dummyInterface": {"preferredLifetime": -1}}},
            "addressConfig.dummyInterface.preferredLifetime",
            "is -1",
        ),
    ],
)
def test_settings_that_cannot_be_used_name_the_field_and_the_mend(settings, field, problem):
    with pytest.raises(ObjectError) as error:
        check_agent(agent(**settings))
    assert error.value.field == f"spec.local.{field}"
    assert problem in error.value.problem


@pytest.mark.parametrize("wrong", [expression("In"), expression("Exists", "b")])
def test_a_selector_that_means_nothing_is_refused(wrong):
    selector = {"matchExpressions": [expression("In", "b"), wrong]}
    with pytest.raises(ObjectError, match=r"matchExpressions\[1\].values: In and NotIn need"):
        check_agent(agent(selector=selector))


def doubts(body, *others):
    return list(agent_warnings(check_agent(body), [check_agent(other) for other in others]))


def test_settings_for_other_nodes_are_not_suspicious():
    rack = agent("rack", selector={"matchLabels": {"rack": "a"}})
    assert doubts(agent(), rack) == []


@pytest.mark.parametrize(
    "selector", [None, {"matchLabels": {"rack": "a", "row": "1"}}], ids=["all", "labels"]
)
def test_second_object_for_the_same_nodes_is_a_warning(selector):
    (text,) = doubts(agent("b", selector=selector), agent("a", selector=selector))
    assert "LBNodeAgents a and b select the same nodes" in text
    assert "give b another node selector" in text


def test_object_without_local_is_no_second_object_for_the_same_nodes():
    empty = agent("a")
    empty["spec"].pop("local", None)
    assert doubts(agent("b"), empty) == []
    assert doubts(empty, agent("b")) == []


@pytest.mark.parametrize(
    ("expression", "other"),
    [
        ("eth0", "eth0.100"),
        ("^eth0", "eth0.100"),
        ("eth0$", "veth0"),
        ("eth", "veth"),
        ("lan", "vlan"),
        ("bond[0-9]+", "bond0.100"),
        (r"ens\d+f0", "ens0f0.100"),
        ("enp.*", "venp0"),
        ("eth0|eth1", "eth0.100"),
        (r"eth0\.7", "eth0.7.100"),
    ],
)
def test_expression_that_probably_matches_more_than_meant_is_doubted(expression, other):
    (text,) = doubts(agent(localInterface=expression))
    assert f"selects each interface with {expression!r} anywhere in its name" in text
    assert f"of the name {other}:" in text


@pytest.mark.parametrize(
    "expression",
    ["^eth0$", "^bond[0-9]+$", "^eth", "^(eth0|eth1)$", r"^ens\d+$", ".*", "^e.*", "default"],
)
def test_expression_for_whole_names_or_a_beginning_is_not_doubted(expression):
    assert doubts(agent(localInterface=expression)) == []


def test_no_interface_at_all_is_a_warning():
    (text,) = doubts(agent(localInterface="none"))
    assert "announce none of them" in text
    assert doubts(agent(localInterface="none", interfaces=["eth1"])) == []


RACK_A = NodeConfig(name="rack-a", selector=(Requirement("rack", "In", ("a",)),))


@pytest.mark.parametrize(
    ("configs", "names"),
    [
        ((), None),
        ((NodeConfig(name="all"),), None),
        ((RACK_A, NodeConfig(name="all")), None),
        ((NodeConfig(name="all", has_local=False),), None),
        ((RACK_A,), "n1, n2, n3, n4, n5 and 2 more"),
    ],
    ids=["none", "one for all", "one for the others", "one that is skipped", "one for a rack"],
)
def test_nodes_that_no_object_selects_are_a_warning(configs, names):
    nodes = {"n0": {"rack": "a"}, **{f"n{number}": {"rack": "b"} for number in range(1, 8)}}
    texts = [text.partition(", so")[0] for text in deselected_warnings(configs, nodes)]
    assert texts == ([f"no LBNodeAgent selects {names}"] if names else [])

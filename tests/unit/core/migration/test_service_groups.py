# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import ip_network

import pytest

from purelb.core.errors import SettingError
from purelb.core.migration.convert import convert
from purelb.core.migration.service_groups import GroupReason, convert_groups

NODES = [ip_network("10.0.0.0/24"), ip_network("fd00::/64"), ip_network("10.9.0.0/28")]
NEAR_V4 = {"pool": "10.0.0.200-10.0.0.210", "subnet": "10.0.0.0/24", "aggregation": "default"}
NEAR_V6 = {"pool": "fd00::200-fd00::210", "subnet": "fd00::/64"}
FAR_V4 = {"pool": "192.168.7.0/25", "subnet": "192.168.7.0/24", "aggregation": "default"}
FAR_V6 = {"pool": "fd07::/120", "subnet": "fd07::/64"}
ROUTED_V4 = {**FAR_V4, "aggregation": "/32"}
ROUTED_V6 = {**FAR_V6, "aggregation": "/128"}
OVER_V4 = {"pool": "10.9.0.10-10.9.0.20", "subnet": "10.9.0.0/24"}
OVER_V6 = {"pool": "fd00::0:ffff:ffff:ffff:ffff-fd00:0:0:1::5", "subnet": "fd00::/32"}
NETBOX = {"url": "https://netbox.example.com", "tenant": "t"}


def group(name="a", *, annotations=None, **spec):
    meta = {"name": name, "namespace": "purelb", "uid": "u", "labels": {"l": "1"}}
    if annotations is not None:
        meta["annotations"] = annotations
    return {"apiVersion": "purelb.io/v1", "kind": "ServiceGroup", "metadata": meta, "spec": spec}


def proposed(body):
    (proposal,) = convert_groups([body], NODES)
    return proposal


@pytest.mark.parametrize(
    ("pool", "source", "reason", "question"),
    [
        ({"v4pool": NEAR_V4}, "local", "inNodeSubnet", ""),
        ({"v6pool": NEAR_V6}, "local", "inNodeSubnet", ""),
        ({"v4pools": [NEAR_V4], "v6pools": [NEAR_V6]}, "local", "inNodeSubnet", ""),
        (NEAR_V4, "local", "inNodeSubnet", ""),
        ({"v4pool": FAR_V4}, "remote", "outsideNodeSubnets", ""),
        ({"v6pool": FAR_V6}, "remote", "outsideNodeSubnets", ""),
        ({"v4pool": ROUTED_V4}, "remote", "hostRoute", ""),
        ({"v6pool": ROUTED_V6}, "remote", "hostRoute", ""),
        ({"v4pool": FAR_V4, "v6pool": ROUTED_V6}, "remote", "hostRoute", ""),
        (
            {"v4pool": {**NEAR_V4, "aggregation": "/32"}},
            "remote",
            "hostRouteInNodeSubnet",
            "10.0.0.200-10.0.0.210 makes host routes",
        ),
        (
            {"v6pool": {**NEAR_V6, "aggregation": "/128"}},
            "remote",
            "hostRouteInNodeSubnet",
            "fd00::200-fd00::210 makes host routes",
        ),
        ({"v4pool": OVER_V4}, "local", "partlyInNodeSubnet", "10.9.0.10-10.9.0.20 reaches beyond"),
        ({"v6pool": OVER_V6}, "local", "partlyInNodeSubnet", "reaches beyond the nodes' subnet"),
    ],
    ids=str,
)
def test_a_group_becomes_local_or_remote_with_a_reason(pool, source, reason, question):
    body = group(local=pool)
    proposal = proposed(body)
    assert proposal.group == "ServiceGroup purelb/a"
    assert proposal.reason.value == reason
    (new,) = proposal.groups
    assert new["spec"] == {source: convert(body, to="v2")["spec"]["local"]}
    assert new["metadata"] == {"name": "a", "namespace": "purelb", "labels": {"l": "1"}}
    assert question in proposal.question
    assert bool(question) == bool(proposal.question)


class TestMixedGroups:
    def test_two_groups_are_proposed_and_the_local_one_keeps_the_name(self):
        proposal = proposed(group(local={"v4pools": [FAR_V4, NEAR_V4, ROUTED_V4]}))
        assert proposal.reason is GroupReason.MIXED
        assert [(g["metadata"]["name"], g["spec"]) for g in proposal.groups] == [
            ("a", {"local": {"v4pool": NEAR_V4}}),
            ("a-remote", {"remote": {"v4pools": [FAR_V4, ROUTED_V4]}}),
        ]
        assert "192.168.7.0-192.168.7.127" in proposal.question
        assert "purelb.io/service-group: a-remote" in proposal.question
        assert "families" not in proposal.question

    def test_separated_families_are_mentioned(self):
        proposal = proposed(group(local={"v4pool": NEAR_V4, "v6pool": FAR_V6}))
        assert [g["spec"] for g in proposal.groups] == [
            {"local": {"v4pool": NEAR_V4}},
            {"remote": {"v6pool": FAR_V6}},
        ]
        assert "with both families" in proposal.question

    def test_other_open_decisions_are_mentioned(self):
        proposal = proposed(group(local={"v4pools": [OVER_V4, FAR_V4]}))
        assert "reaches beyond the nodes' subnet" in proposal.question

    def test_a_name_that_is_taken_is_not_proposed(self):
        mixed = group(local={"v4pools": [NEAR_V4, FAR_V4]})
        there = group("a-remote", local={"v4pool": FAR_V4})
        first, _second = convert_groups([mixed, there], NODES)
        assert [g["metadata"]["name"] for g in first.groups] == ["a", "a-remote-2"]


def test_a_netbox_that_v1_asks_over_http_is_asked_so_in_v2():
    clear = {"url": "http://netbox.example.com", "tenant": "t"}
    proposal = proposed(group(netbox=clear))
    assert proposal.groups[0]["spec"] == {"netbox": {**clear, "allowHTTP": True}}


def test_a_netbox_stays_and_its_addresses_are_asked_about():
    proposal = proposed(group(netbox=NETBOX))
    assert proposal.reason is GroupReason.NETBOX
    assert proposal.groups[0]["spec"] == {"netbox": NETBOX}
    assert "as remote" in proposal.question


def test_a_group_that_was_written_in_v2_is_what_it_was():
    remote = {**group(remote={"v4pool": NEAR_V4}), "apiVersion": "purelb.io/v2"}
    proposal = proposed(convert(remote, to="v1"))
    assert proposal.reason is GroupReason.WRITTEN_IN_V2
    assert proposal.groups[0]["spec"] == {"remote": {"v4pool": NEAR_V4}}


def test_annotations_of_people_stay_and_those_of_tools_go():
    mine = {"kubectl.kubernetes.io/last-applied-configuration": "{}", "example.com/a": "b"}
    proposal = proposed(group(annotations=mine, local=NEAR_V4))
    assert proposal.groups[0]["metadata"]["annotations"] == {"example.com/a": "b"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "it has none"),
        ({"local": {}}, "it has none"),
        ({"local": 5}, "correct spec.local first: must be an object"),
        ({"local": {"v4pools": ["x"]}}, "must be an object with texts"),
        ({"local": {"v4pool": {**NEAR_V4, "pool": 5}}}, "must be an object with texts"),
        ({"local": {"v4pool": {"subnet": "10.0.0.0/24"}}}, "pool is missing"),
        ({"local": {"v6pool": {"pool": "fd00::/120"}}}, "subnet is missing"),
        ({"local": {"v4pool": {**NEAR_V4, "pool": "ten"}}}, "ten"),
        ({"local": {"v6pool": NEAR_V4}}, "10.0.0.200-10.0.0.210 is of the other family"),
        ({"local": {"v4pool": NEAR_V6}}, "an IPv4 range of spec.local first"),
    ],
    ids=str,
)
def test_invalid_group_has_the_remedy(spec, words):
    proposal = proposed(group(**spec))
    assert proposal.reason is GroupReason.INVALID
    assert proposal.groups == ()
    assert words in proposal.question


def test_without_any_subnet_nothing_is_guessed():
    with pytest.raises(SettingError, match="no subnet of a node is known"):
        convert_groups([group(local=NEAR_V4)], [])

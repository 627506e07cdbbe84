# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from purelb.core.errors import ObjectError, SettingError
from purelb.core.migration.convert import convert
from purelb.core.migration.replacements import as_dict, nearby_subnets, plan_replacements

NODES = [ip_network("10.0.0.0/24"), ip_network("fd00::/64")]
NEAR_V4 = {"pool": "10.0.0.200-10.0.0.210", "subnet": "10.0.0.0/24", "aggregation": "default"}
NEAR_V6 = {"pool": "fd00::200-fd00::210", "subnet": "fd00::/64", "aggregation": "default"}
FAR_V4 = {"pool": "192.168.7.0/25", "subnet": "192.168.7.0/24", "aggregation": "default"}
FAR_V6 = {"pool": "fd07::/120", "subnet": "fd07::/64", "aggregation": "/128"}
NETBOX = {"url": "https://netbox.example.com", "tenant": "t"}


def body(kind="ServiceGroup", name="a", namespace="purelb", version="v1", **spec):
    meta = {"name": name, "namespace": namespace, "uid": "u"}
    return {"apiVersion": f"purelb.io/{version}", "kind": kind, "metadata": meta, "spec": spec}


def taken(*bodies, **decisions):
    return plan_replacements(bodies, subnets=NODES, decisions=decisions, namespace="purelb-system")


def specs(takeover):
    return {obj["metadata"]["name"]: obj["spec"] for obj in takeover.objects}


def test_all_objects_come_into_the_new_namespace_groups_first():
    agent = body("LBNodeAgent", local={"localint": "eth1", "sendgarp": True})
    found = taken(agent, body(local=NEAR_V4), body(name="b", local={"v6pool": FAR_V6}))
    assert [(o["kind"], o["metadata"]) for o in found.objects] == [
        ("ServiceGroup", {"name": "a", "namespace": "purelb-system"}),
        ("ServiceGroup", {"name": "b", "namespace": "purelb-system"}),
        ("LBNodeAgent", {"name": "a", "namespace": "purelb-system"}),
    ]
    assert found.objects[2]["spec"]["local"] == {
        "localInterface": "eth1",
        "garpConfig": {"enabled": True},
    }
    assert found.questions == {}
    assert found.agents[0].warning == ""


def test_agent_without_announcements_is_a_warning():
    (agent,) = taken(body("LBNodeAgent", local={"localint": "default"})).agents
    assert agent.agent == "LBNodeAgent purelb/a"
    assert "garpConfig.enabled" in agent.warning


@pytest.mark.parametrize("near", [NEAR_V4, NEAR_V6], ids=["IPv4", "IPv6"])
@pytest.mark.parametrize("far", [FAR_V4, FAR_V6], ids=["IPv4", "IPv6"])
class TestDecisions:
    def mixed(self, near, far):
        pools = {4: [], 6: []}
        for one in (near, far):
            pools[6 if ":" in one["pool"] else 4].append(one)
        return body(local={f"v{v}pools": entries for v, entries in pools.items() if entries})

    @pytest.mark.parametrize("choice", ["local", "remote"])
    def test_a_mixed_group_becomes_one_of_what_was_decided(self, near, far, choice):
        found = taken(self.mixed(near, far), a=choice)
        assert found.questions == {}
        assert found.groups[0].reason.value == "decided"
        (new,) = found.objects
        (source,) = new["spec"]
        assert source == choice
        entries = [
            one
            for field, value in new["spec"][source].items()
            for one in (value if field.endswith("s") else [value])
        ]
        assert sorted(map(str, entries)) == sorted(map(str, (near, far)))

    def test_as_proposed_it_is_split_and_asks_no_more(self, near, far):
        assert taken(self.mixed(near, far)).questions.keys() == {"ServiceGroup purelb/a"}
        found = taken(self.mixed(near, far), a="proposed")
        assert [list(spec) for spec in specs(found).values()] == [["local"], ["remote"]]
        assert found.questions == {}
        assert found.groups[0].reason.value == "mixed"


@pytest.mark.parametrize(
    ("pool", "choice", "warned"),
    [
        (FAR_V4, "local", "192.168.7.0-192.168.7.127"),
        (FAR_V6, "local", "fd07::-fd07::ff"),
        (FAR_V4, "remote", ""),
        (NEAR_V4, "local", ""),
        (NEAR_V6, "remote", ""),
    ],
    ids=lambda value: str(value)[:40],
)
def test_unannounceable_decision_is_a_warning(pool, choice, warned):
    (group,) = as_dict(taken(body(local=pool), a=choice))["groups"]
    assert warned in group["warning"]
    assert bool(warned) == bool(group["warning"])
    assert group["becomes"] == [{"name": "a", "source": choice}]


class TestFixedProposals:
    def test_invalid_group_keeps_its_question(self):
        found = taken(body(local={}), a="local")
        assert "it has none" in found.questions["ServiceGroup purelb/a"]
        assert found.objects == ()

    @pytest.mark.parametrize("choice", ["remote", "proposed"])
    def test_a_netbox_is_remote(self, choice):
        assert taken(body(netbox=NETBOX)).questions
        found = taken(body(netbox=NETBOX), a=choice)
        assert specs(found) == {"a": {"netbox": NETBOX}}
        assert found.questions == {}

    def test_a_netbox_cannot_be_local(self):
        with pytest.raises(SettingError, match="addresses from NetBox as remote: leave it out"):
            taken(body(netbox=NETBOX), a="local")

    def test_v2_group_is_unchanged(self):
        old = convert(body(version="v2", remote={"v4pool": NEAR_V4}), to="v1")
        assert specs(taken(old, a="remote")) == {"a": {"remote": {"v4pool": NEAR_V4}}}
        with pytest.raises(SettingError, match="cannot be local, as the group was written in v2"):
            taken(old, a="local")


@pytest.mark.parametrize(
    ("decisions", "words"),
    [
        ({"a": "both"}, "decisions: a: must be one of local, remote, proposed"),
        ({"b": "local"}, "decisions: b: there is no such ServiceGroup, only a"),
    ],
)
def test_a_decision_that_cannot_be_is_refused(decisions, words):
    with pytest.raises(SettingError, match=words):
        taken(body(local=NEAR_V4), **decisions)


def test_a_decision_without_any_group_says_so():
    with pytest.raises(SettingError, match="only none"):
        taken(a="local")


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (body("Service"), "Service purelb/a: kind: must be ServiceGroup or LBNodeAgent"),
        (body(version="v2", local=NEAR_V4), "apiVersion: must be purelb.io/v1"),
        ({"apiVersion": "purelb.io/v1", "kind": "ServiceGroup"}, "metadata.name: is missing"),
        (body(namespace="other", local=FAR_V4), "other/a: metadata.name: is taken"),
    ],
    ids=["another kind", "another version", "no name", "the same name twice"],
)
def test_an_object_that_cannot_be_converted_is_named(bad, words):
    with pytest.raises(ObjectError, match=words):
        taken(body(local=NEAR_V4), bad)


def test_empty_input_gives_empty_output():
    assert plan_replacements([], subnets=[], decisions={}, namespace="n").objects == ()


def test_the_answer_names_every_group_range_and_agent():
    agent = body("LBNodeAgent", local={})
    assert as_dict(taken(body(local=NEAR_V4), agent)) == {
        "groups": [
            {
                "group": "ServiceGroup purelb/a",
                "reason": "inNodeSubnet",
                "question": "",
                "warning": "",
                "becomes": [{"name": "a", "source": "local"}],
                "ranges": [
                    {
                        "range": "10.0.0.200-10.0.0.210",
                        "subnet": "10.0.0.0/24",
                        "proposed": "local",
                        "reason": "inNodeSubnet",
                    }
                ],
            }
        ],
        "node_agents": [
            {
                "agent": "LBNodeAgent purelb/a",
                "becomes": "purelb-system/a",
                "warning": taken(agent).agents[0].warning,
            }
        ],
        "objects": list(taken(body(local=NEAR_V4), agent).objects),
        "questions": [],
    }


class TestSubnetsByAddresses:
    def test_the_subnet_of_a_range_that_holds_a_node_is_a_nodes(self):
        bodies = [body(local={"v4pools": [NEAR_V4, FAR_V4], "v6pool": NEAR_V6})]
        found = nearby_subnets(bodies, map(ip_address, ("10.0.0.7", "fd00::7", "10.99.0.1")))
        assert set(found) == {*NODES, *map(ip_network, ("10.0.0.7", "fd00::7", "10.99.0.1"))}

    @pytest.mark.parametrize(
        "spec",
        [
            {},
            {"local": 5},
            {"local": {"v4pools": 5}},
            {"local": {"v4pools": ["x"]}},
            {"local": {"v4pool": {"subnet": "x"}}},
        ],
        ids=str,
    )
    def test_a_group_that_cannot_be_read_adds_nothing(self, spec):
        assert nearby_subnets([body(**spec)], [ip_address("10.0.0.7")]) == (
            ip_network("10.0.0.7/32"),
        )

    def test_a_body_without_a_spec_adds_nothing(self):
        assert nearby_subnets([{"kind": "ServiceGroup"}], []) == ()

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The modules for ServiceGroups and LBNodeAgents: check mode, changes, refusals, removal."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.timeout(120)
NAMESPACE = "purelb-system"
GROUPS = f"/apis/purelb.io/v2/namespaces/{NAMESPACE}/servicegroups"
AGENTS = f"/apis/purelb.io/v2/namespaces/{NAMESPACE}/lbnodeagents"
POOLS = {
    "v4pool": {"pool": "10.200.0.10-10.200.0.20", "subnet": "10.200.0.0/24"},
    "v6pool": {"pool": "fd28:200::10-fd28:200::20", "subnet": "fd28:200::/64"},
}
FAMILIES = pytest.mark.parametrize("family", POOLS)


@pytest.mark.parametrize(("family", "source"), [("v4pool", "local"), ("v6pool", "remote")])
def test_group_is_created_changed_and_removed(cluster, play, family, source):
    first = {"name": "life", source: {family: POOLS[family], "skip_ipv6_dad": True}}
    second = {"name": "life", source: {f"{family}s": [POOLS[family]]}, "labels": {"tier": "gold"}}
    gone = {"name": "life", "state": "absent"}
    done = play(
        "purelb_service_group",
        {**first, "check": True},
        first,
        first,
        {**second, "check": True},
        second,
        second,
        {**gone, "check": True},
        gone,
        gone,
    )
    actions = [result["action"] for result in done.results]
    assert actions[:3] == ["created", "created", "unchanged"]
    assert actions[3:6] == ["changed", "changed", "unchanged"]
    assert actions[6:] == ["deleted", "deleted", "absent"]
    assert done.changed == [action not in ("unchanged", "absent") for action in actions]
    (difference,) = done.results[4]["diff"]
    assert difference["before"]["spec"][source] == {
        family: {**POOLS[family], "aggregation": "default"},
        "skipIPv6DAD": True,
        "multiPool": False,
        "balancePools": False,
    }
    # Options that the second task omits are reset to their defaults.
    assert done.results[5]["object"]["spec"][source] == {
        f"{family}s": [{**POOLS[family], "aggregation": "default"}],
        "skipIPv6DAD": False,
        "multiPool": False,
        "balancePools": False,
    }
    assert done.results[5]["object"]["metadata"]["labels"] == {"tier": "gold"}
    assert not cluster.api.exists(f"{GROUPS}/life")


@pytest.mark.thorough
def test_every_option_of_a_group_reaches_the_cluster(cluster, play):
    netbox = {"url": "http://netbox.example.com", "tenant": "purelb", "aggregation": "/32"}
    netbox["allow_http"] = True
    external = {"provider": "ours", "announce": "local", "socket": "/run/ours.sock"}
    team = {"namespaces": ["team-a"], "enforce_namespaces": True, "namespace_default": True}
    team["sharing"] = "cluster"
    done = play(
        "purelb_service_group",
        {"name": "whole", "netbox": netbox, "check": True},
        {"name": "whole", "external": external, "annotations": {"a": "b"}, **team},
        {"name": "whole", "state": "absent"},
    )
    netbox["allowHTTP"] = netbox.pop("allow_http")
    assert done.results[0]["object"]["spec"]["netbox"] == netbox
    assert done.results[1]["object"]["spec"] == {
        "external": external,
        "namespaces": ["team-a"],
        "enforceNamespaces": True,
        "namespaceDefault": True,
        "sharing": "cluster",
    }
    assert done.results[1]["object"]["metadata"]["annotations"] == {"a": "b"}


REFUSED = [
    ({"local": {"v4pool": {"pool": "10.0.0.9-10.0.0.1", "subnet": "10.0.0.0/24"}}}, "local.v4pool"),
    ({"local": {"v6pool": {"pool": "fd00::9-fd00::1", "subnet": "fd00::/64"}}}, "local.v6pool"),
    ({"remote": {"v4pool": POOLS["v6pool"]}}, "remote.v4pool: must hold IPv4"),
    ({"remote": {"v6pools": [POOLS["v4pool"]]}}, "remote.v6pools[0]: must hold IPv6"),
    ({}, "any of the following are missing: local, remote, netbox, external"),
    # The API server's complete message.
    ({"name": "Wrong_Name", "remote": POOLS}, "a lowercase RFC 1123 subdomain must consist of"),
    ({"namespace": "nowhere", "remote": POOLS}, 'namespaces "nowhere" not found'),
]


def test_invalid_options_are_refused_by_name_and_nothing_is_created(cluster, play):
    before = {group["metadata"]["name"] for group in cluster.api.items(GROUPS)}
    done = play("purelb_service_group", *({"name": "wrong", **given} for given, _text in REFUSED))
    for (_given, text), result in zip(REFUSED, done.results, strict=True):
        assert result["failed"]
        assert text in result["msg"]
    assert {group["metadata"]["name"] for group in cluster.api.items(GROUPS)} == before


@pytest.mark.thorough
@FAMILIES
def test_overlap_is_a_warning_and_wait_returns_the_conditions(play, family):
    pool = {"remote": {family: POOLS[family]}}
    wait = {**pool, "wait": True, "wait_timeout": 20}
    done = play(
        "purelb_service_group",
        {"name": "older", **wait},
        {"name": "younger", **pool, "check": True},
        {"name": "younger", **wait},
        {"name": "younger", "state": "absent"},
        {"name": "older", "state": "absent"},
    )
    conditions = done.results[0]["object"]["status"]["conditions"]
    assert [entry["status"] for entry in conditions if entry["type"] == "Ready"] == ["True"]
    assert "of ServiceGroup older" in done.output
    assert "of ServiceGroup younger" in done.output
    assert "overlap, so the younger group is not used" in done.output
    assert "ServiceGroup purelb-system/younger is not accepted: " in done.messages[2]
    assert "older" in done.messages[2]
    assert done.changed == [True, True, False, True, True]


@pytest.mark.thorough
def test_fields_of_another_manager_are_taken_over_only_with_force(cluster, play):
    body = {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "theirs", "namespace": NAMESPACE},
        "spec": {"remote": {"v4pool": POOLS["v4pool"]}},
    }
    cluster.api.apply(body, manager="another-tool")
    wanted = {"v4pool": {**POOLS["v4pool"], "pool": "10.200.0.30-10.200.0.40"}}
    done = play(
        "purelb_service_group",
        {"name": "theirs", "remote": wanted},
        {"name": "theirs", "remote": wanted, "force_conflicts": True},
        {"name": "theirs", "state": "absent"},
    )
    assert 'conflict with "another-tool"' in done.messages[0]
    assert ".spec.remote.v4pool.pool" in done.messages[0]
    assert done.results[1]["action"] == "changed"


def test_node_settings_are_created_changed_and_removed(cluster, play):
    lifetimes = {"valid_lifetime": 60, "preferred_lifetime": 30, "no_prefix_route": False}
    first = {
        "name": "settings",
        # Selects every node of the lab, so that none loses its addresses.
        "node_selector": {"match_expressions": [{"key": "kubernetes.io/os", "operator": "Exists"}]},
        "local": {
            "garp_config": {"count": 5, "interval": "1s", "delay_ms": 0},
            "address_config": {"local_interface": lifetimes},
        },
    }
    second = {"name": "settings", "local": {"garp_config": {"count": 4}}}
    wrong = {"name": "settings", "local": {"local_interface": "eth("}}
    gone = {"name": "settings", "state": "absent"}
    done = play(
        "purelb_lb_node_agent",
        {**first, "check": True},
        first,
        first,
        second,
        second,
        wrong,
        gone,
        gone,
    )
    assert done.changed == [True, True, False, True, False, False, True, False]
    spec = done.results[2]["object"]["spec"]
    assert spec["local"]["garpConfig"] == {
        "enabled": True,
        "count": 5,
        "interval": "1s",
        "delayMs": 0,
        "verifyBeforeSend": True,
    }
    assert spec["local"]["addressConfig"]["localInterface"]["preferredLifetime"] == 30
    assert "nodeSelector" not in done.results[4]["object"]["spec"]
    assert "settings: local.local_interface: 'eth(' is not a regular expression" in done.messages[5]
    assert not cluster.api.exists(f"{AGENTS}/settings")

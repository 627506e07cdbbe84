# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The modules, in playbooks: foretold, done, done again, changed, refused, undone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest
import yaml

from labkit.api import ApiError
from watching import eventually

pytestmark = pytest.mark.timeout(120)
ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "purelb-system"
GROUPS = f"/apis/purelb.io/v2/namespaces/{NAMESPACE}/servicegroups"
AGENTS = f"/apis/purelb.io/v2/namespaces/{NAMESPACE}/lbnodeagents"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POOLS = {
    "v4pool": {"pool": "10.200.0.10-10.200.0.20", "subnet": "10.200.0.0/24"},
    "v6pool": {"pool": "fd28:200::10-fd28:200::20", "subnet": "fd28:200::/64"},
}
FAMILIES = pytest.mark.parametrize("family", POOLS)


class Play:
    """Results of the tasks of one playbook, and what it printed."""

    def __init__(self, results, output):
        self.results = results
        self.output = output
        self.changed = [result.get("changed", False) for result in results]
        self.messages = [result.get("msg", "") for result in results]


@pytest.fixture
def play(cluster, tmp_path):
    """Run tasks, each a module and its options, with the connection set once for the group."""

    def run(module, *tasks):
        names = [f"result_{number}" for number in range(len(tasks))]
        steps = [
            {
                "name": f"Task {name}",
                f"purelb.purelb.{module}": options,
                "register": name,
                "ignore_errors": True,
                "check_mode": options.pop("check", False),
                "diff": True,
            }
            for name, options in zip(names, map(dict, tasks), strict=True)
        ]
        path = tmp_path / "results.json"
        content = "{{ [" + ", ".join(names) + "] | to_json }}"
        keep = {"content": content, "dest": str(path), "mode": "0600"}
        book = {
            "hosts": "localhost",
            "gather_facts": False,
            "vars": {"ansible_python_interpreter": sys.executable},
            "module_defaults": {
                "group/purelb.purelb.purelb": {"kubeconfig": str(cluster.kubeconfig)}
            },
            "tasks": [*steps, {"name": "Keep the results", "ansible.builtin.copy": keep}],
        }
        (tmp_path / "play.yml").write_text(yaml.safe_dump([book], sort_keys=False))
        output = ansible_playbook(tmp_path / "play.yml")
        return Play(json.loads(path.read_text()), output)

    return run


def ansible_playbook(path):
    """What a playbook prints, in a line; no variable tells it about the cluster."""
    environ = {k: v for k, v in os.environ.items() if k != "KUBECONFIG"}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), str(path)],
        cwd=ROOT, env={**environ, "ANSIBLE_NOCOLOR": "1"},
        text=True, capture_output=True, check=False, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return " ".join((done.stdout + done.stderr).split())


@pytest.mark.parametrize(("family", "source"), [("v4pool", "local"), ("v6pool", "remote")])
def test_a_group_comes_changes_and_goes(cluster, play, family, source):
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
    # What the second task leaves out is gone: one range by another, the switch by its default.
    assert done.results[5]["object"]["spec"][source] == {
        f"{family}s": [{**POOLS[family], "aggregation": "default"}],
        "skipIPv6DAD": False,
        "multiPool": False,
        "balancePools": False,
    }
    assert done.results[5]["object"]["metadata"]["labels"] == {"tier": "gold"}
    assert not cluster.api.exists(f"{GROUPS}/life")


def test_every_option_of_a_group_reaches_the_cluster(cluster, play):
    netbox = {"url": "https://netbox.example.com", "tenant": "purelb", "aggregation": "/32"}
    external = {"provider": "ours", "announce": "local", "socket": "/run/ours.sock"}
    team = {"namespaces": ["team-a"], "enforce_namespaces": True, "namespace_default": True}
    done = play(
        "purelb_service_group",
        {"name": "whole", "netbox": netbox, "check": True},
        {"name": "whole", "external": external, "annotations": {"a": "b"}, **team},
        {"name": "whole", "state": "absent"},
    )
    assert done.results[0]["object"]["spec"]["netbox"] == netbox
    assert done.results[1]["object"]["spec"] == {
        "external": external,
        "namespaces": ["team-a"],
        "enforceNamespaces": True,
        "namespaceDefault": True,
    }
    assert done.results[1]["object"]["metadata"]["annotations"] == {"a": "b"}


REFUSED = [
    ({"local": {"v4pool": {"pool": "10.0.0.9-10.0.0.1", "subnet": "10.0.0.0/24"}}}, "local.v4pool"),
    ({"local": {"v6pool": {"pool": "fd00::9-fd00::1", "subnet": "fd00::/64"}}}, "local.v6pool"),
    ({"remote": {"v4pool": POOLS["v6pool"]}}, "remote.v4pool: must hold IPv4"),
    ({"remote": {"v6pools": [POOLS["v4pool"]]}}, "remote.v6pools[0]: must hold IPv6"),
    ({}, "any of the following are missing: local, remote, netbox, external"),
    # The API server's own words, in full.
    ({"name": "Wrong_Name", "remote": POOLS}, "a lowercase RFC 1123 subdomain must consist of"),
    ({"namespace": "nowhere", "remote": POOLS}, 'namespaces "nowhere" not found'),
]


def test_what_cannot_be_is_refused_with_the_option_and_nothing_is_made(cluster, play):
    before = {group["metadata"]["name"] for group in cluster.api.items(GROUPS)}
    done = play("purelb_service_group", *({"name": "wrong", **given} for given, _text in REFUSED))
    for (_given, text), result in zip(REFUSED, done.results, strict=True):
        assert result["failed"]
        assert text in result["msg"]
    assert {group["metadata"]["name"] for group in cluster.api.items(GROUPS)} == before


@FAMILIES
def test_an_overlap_is_a_warning_and_waiting_tells_what_the_allocator_says(play, family):
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
    assert [one["status"] for one in conditions if one["type"] == "Ready"] == ["True"]
    assert "of ServiceGroup older" in done.output
    assert "of ServiceGroup younger" in done.output
    assert "overlap, so the younger group is not used" in done.output
    assert "ServiceGroup purelb-system/younger is not accepted: " in done.messages[2]
    assert "older" in done.messages[2]
    assert done.changed == [True, True, False, True, True]


def test_what_another_program_set_is_taken_over_only_if_asked_for(cluster, play):
    body = {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "theirs", "namespace": NAMESPACE},
        "spec": {"remote": {"v4pool": POOLS["v4pool"]}},
    }
    cluster.api.apply(body, manager="somebody")
    wanted = {"v4pool": {**POOLS["v4pool"], "pool": "10.200.0.30-10.200.0.40"}}
    done = play(
        "purelb_service_group",
        {"name": "theirs", "remote": wanted},
        {"name": "theirs", "remote": wanted, "force_conflicts": True},
        {"name": "theirs", "state": "absent"},
    )
    assert 'conflict with "somebody"' in done.messages[0]
    assert ".spec.remote.v4pool.pool" in done.messages[0]
    assert done.results[1]["action"] == "changed"


def test_settings_of_nodes_come_change_and_go(cluster, play):
    lifetimes = {"valid_lifetime": 60, "preferred_lifetime": 30, "no_prefix_route": False}
    first = {
        "name": "settings",
        # Every node of the lab, so that none loses its addresses.
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
    assert "settings: local.local_interface: 'eth(' is no expression" in done.messages[5]
    assert not cluster.api.exists(f"{AGENTS}/settings")


@pytest.fixture
def elsewhere(cluster):
    """A namespace for a second set of permissions."""
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "elsewhere"}}
    path = cluster.api.path_of(cluster.api.create(body))
    yield "elsewhere"
    cluster.api.delete(path)
    cluster.api.wait(path, lambda seen: seen is None, what="namespace gone")


def may(lab, namespace, program, verb, resource, group=""):
    attributes = {"verb": verb, "resource": resource, "group": group, "namespace": namespace}
    review = lab.api.create(
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "metadata": {},
            "spec": {
                "user": f"system:serviceaccount:{namespace}:{program}",
                "resourceAttributes": attributes,
            },
        }
    )
    return review["status"]["allowed"]


def test_permissions_are_given_changed_and_taken_away(cluster, play, elsewhere):
    given = {"namespace": elsewhere}
    done = play("purelb_rbac", {**given, "check": True}, given, given, {**given, "check": True})
    assert done.changed == [True, True, False, False]
    assert may(cluster, elsewhere, "lbnodeagent", "update", "leases", "coordination.k8s.io")
    assert may(cluster, elsewhere, "allocator", "patch", "nodes")
    less = {**given, "draining": False}
    done = play("purelb_rbac", less, less)
    assert done.changed == [True, False]
    assert not may(cluster, elsewhere, "allocator", "patch", "nodes")
    gone = {**given, "state": "absent"}
    done = play("purelb_rbac", {**gone, "check": True}, gone, gone)
    assert done.changed == [True, True, False]
    assert not may(cluster, elsewhere, "lbnodeagent", "list", "services")
    # The installation has its own.
    assert may(cluster, NAMESPACE, "lbnodeagent", "list", "services")


def test_a_second_installation_changes_no_permission(play):
    assert play("purelb_rbac", {}).changed == [False]


def version(name, *, stored, served=True):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "name": name,
        "served": served,
        "storage": stored,
        "schema": {"openAPIV3Schema": schema},
    }


def definition(*versions):
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.com", "labels": {"made-by": "test"}},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": list(versions),
        },
    }


OLD = definition(version("v1", stored=True))
BOTH = definition(version("v1", stored=False), version("v2", stored=True))
NEW = definition(version("v2", stored=True))


@pytest.fixture
def things(cluster):
    """Make things of the test's definition; the definition goes after the test."""

    def make(*names):
        for name in names:
            meta = {"name": name, "namespace": "default"}
            cluster.api.create({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": meta})

    yield make
    cluster.api.delete(f"{CRDS}/things.example.com")
    cluster.api.wait(f"{CRDS}/things.example.com", lambda seen: seen is None, what="things gone")


def resource_versions(lab):
    def read():
        # What is stored by a changed definition is served again a moment later.
        with suppress(ApiError):
            return lab.api.items("/apis/example.com/v2/namespaces/default/things")

    things = eventually(read, "things after the change")
    return {thing["metadata"]["name"]: thing["metadata"]["resourceVersion"] for thing in things}


def test_what_is_stored_is_brought_to_the_version_of_an_upgrade(cluster, play, things):
    old = {"definitions": [OLD]}
    assert play("purelb_crd", {**old, "check": True}, old, old).changed == [True, True, False]
    things("a", "b")
    late = {"definitions": [BOTH], "migrate": False}
    assert play("purelb_crd", late, late).changed == [True, False]
    before = resource_versions(cluster)
    both = {"definitions": [BOTH]}
    done = play("purelb_crd", {**both, "check": True}, both, both)
    assert done.changed == [True, True, False]
    moved = [{"name": "things.example.com", "objects": 2}]
    assert [result["migrated"] for result in done.results] == [moved, moved, []]
    assert done.results[1]["diff"][0]["before"] == {"storedVersions": ["v1", "v2"]}
    # Written anew, which the API server does only for what is stored otherwise.
    after = resource_versions(cluster)
    assert not set(before.values()) & set(after.values())
    assert cluster.api.get(f"{CRDS}/things.example.com")["status"]["storedVersions"] == ["v2"]
    new = {"definitions": [NEW]}
    assert play("purelb_crd", {**new, "check": True}, new, new).changed == [True, True, False]
    assert resource_versions(cluster) == after


def test_versions_are_migrated_before_an_upgrade_takes_them_away(cluster, play, things):
    play("purelb_crd", {"definitions": [OLD]})
    things("a")
    play("purelb_crd", {"definitions": [BOTH], "migrate": False})
    done = play("purelb_crd", {"definitions": [NEW]})
    assert done.results[0]["migrated"] == [{"name": "things.example.com", "objects": 1}]


def test_definitions_with_objects_stay_unless_the_objects_are_to_go(cluster, play, things):
    play("purelb_crd", {"definitions": [OLD]})
    things("a", "b")
    gone = {"definitions": [OLD], "state": "absent"}
    foreign = {**OLD, "metadata": {**OLD["metadata"], "labels": {"made-by": "somebody else"}}}
    done = play(
        "purelb_crd",
        gone,
        {**gone, "check": True},
        {**gone, "definitions": [foreign]},
        {**gone, "remove_objects": True},
        gone,
    )
    assert done.changed == [False, False, False, True, False]
    for message in done.messages[:2]:
        assert "2 Thing (Thing default/a, Thing default/b)" in message
        assert "set remove_objects" in message
    assert "things.example.com stays: it has other labels" in done.output


def test_the_collections_own_definitions_need_no_option(cluster, play):
    done = play("purelb_crd", {}, {"state": "absent", "check": True})
    assert not done.changed[0]
    assert {result["name"] for result in done.results[0]["results"]} == {
        "servicegroups.purelb.io",
        "lbnodeagents.purelb.io",
    }
    assert "ServiceGroup purelb-system/default" in done.messages[1]

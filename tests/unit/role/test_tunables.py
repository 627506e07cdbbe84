# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Each variable of the installation has its effect in the manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import ROOT
from tests.support.lab.cluster_queries import run_ansible

pytestmark = pytest.mark.timeout(120)
DEFAULTS = yaml.safe_load((ROOT / "roles/purelb_install/defaults/main.yml").read_text())
# Variables without effect in the manifests, with the tests that cover them.
ELSEWHERE = {
    "state": "molecule default",
    "manifests_dir": "here",
    "kubeconfig": "test_connection",
    "check_image": "test_inspection",
    "context": "test_connection",
    "connection": "test_connections",
    "remove_crds": "molecule default",
    "force_conflicts": "test_modules",
    "accept": "test_preflight",
    "wait": "test_upgrade",
    "wait_timeout": "test_upgrade",
    "v1_api": "test_versions",
    "monitoring": "test_monitoring",
    "monitoring_dir": "test_monitoring",
    "monitoring_labels": "test_monitoring",
    "alerts": "test_alerts",
    # The rows below are installed without policies.
    "annotation_writers": "test_reserved_annotations",
    "migration_writers": "test_migrate",
    "eviction_reporters": "test_eviction_events",
    "address_ranges": "test_stolen_allocator",
    "node_subnets": "test_node_lease",
    "image_archive": "test_load_image",
    "ctr": "test_load_image",
}
SELECTOR, TOLERATIONS = {"pool": "edge"}, [{"key": "edge", "operator": "Exists"}]
AGENT, ALLOCATOR = "DaemonSet lbnodeagent", "Deployment allocator"
POD = ("spec", "template", "spec")
PROGRAM = (*POD, "containers", 0)
SIDECAR = {"name": "ipam", "image": "registry.example.com/ipam:1"}
VOLUME = {"name": "cache", "emptyDir": {}}
RESOURCES = {"requests": {"cpu": "10m"}, "limits": {"memory": "1Gi"}}
SECRETS = [{"name": "a"}, {"name": "b"}]
LOCAL = {"local": {"localInterface": "bond[0-9]+"}}

# Variable, its value, the object that it changes, the path in it, the expected value.
ROWS: list[tuple[str, Any, str, tuple[Any, ...], Any]] = [
    ("namespace", "lb", AGENT, ("metadata", "namespace"), "lb"),
    ("namespace", "lb", ALLOCATOR, ("metadata", "namespace"), "lb"),
    ("manage_namespace", False, "Namespace lb", (), None),
    ("image", "r.example.com/p:2", AGENT, (*PROGRAM, "image"), "r.example.com/p:2"),
    ("image", "r.example.com/p:2", ALLOCATOR, (*PROGRAM, "image"), "r.example.com/p:2"),
    ("image_pull_policy", "Always", AGENT, (*PROGRAM, "imagePullPolicy"), "Always"),
    ("image_pull_policy", "Always", ALLOCATOR, (*PROGRAM, "imagePullPolicy"), "Always"),
    *(
        row
        for who in (AGENT, ALLOCATOR)
        for row in [
            ("image_pull_secrets", ["a", "b"], who, (*POD, "imagePullSecrets"), SECRETS),
            ("log_level", "debug", who, (*PROGRAM, "args", 0), "--log-level=debug"),
            ("log_format", "logfmt", who, (*PROGRAM, "args", 1), "--log-format=logfmt"),
            ("metrics_port", 7999, who, (*PROGRAM, "args", 2), "--metrics-port=7999"),
            ("metrics_port", 7999, who, (*PROGRAM, "ports", 0, "containerPort"), 7999),
            ("draining", False, who, (*PROGRAM, "env", "PURELB_DRAINING"), "off"),
        ]
    ),
    (
        "exclude_labelled_nodes",
        False,
        AGENT,
        (*PROGRAM, "env", "PURELB_EXCLUDE_LABELLED_NODES"),
        "off",
    ),
    ("fence", False, AGENT, (*PROGRAM, "env", "PURELB_FENCE"), "off"),
    ("fence", False, AGENT, (*POD, "volumes", 0, "name"), None),
    (
        "fence",
        False,
        AGENT,
        (*PROGRAM, "securityContext", "capabilities", "add"),
        ["NET_ADMIN", "NET_RAW"],
    ),
    (
        "selinux_type",
        "spc_t",
        AGENT,
        (*PROGRAM, "securityContext", "seLinuxOptions"),
        {"type": "spc_t"},
    ),
    (
        "service_proxy_port",
        0,
        AGENT,
        (*PROGRAM, "env", "PURELB_SERVICE_PROXY_PORT"),
        "0",
    ),
    ("lease_duration", "30s", AGENT, (*PROGRAM, "env", "PURELB_LEASE_DURATION"), "30s"),
    ("renew_deadline", "20s", AGENT, (*PROGRAM, "env", "PURELB_RENEW_DEADLINE"), "20s"),
    ("retry_period", "4s", AGENT, (*PROGRAM, "env", "PURELB_RETRY_PERIOD"), "4s"),
    ("claim_unclassed", False, ALLOCATOR, (*PROGRAM, "env", "PURELB_CLAIM_UNCLASSED"), "off"),
    ("claim_unclassed", False, AGENT, (*PROGRAM, "env", "PURELB_CLAIM_UNCLASSED"), "off"),
    ("outage_hold", False, AGENT, (*PROGRAM, "env", "PURELB_OUTAGE_HOLD"), "off"),
    ("outage_hold", False, AGENT, (*POD, "volumes"), None),
    (
        "admission_policy",
        False,
        "ValidatingAdmissionPolicy lbnodeagent-leases.lb.purelb.io",
        (),
        None,
    ),
    ("agent_node_selector", SELECTOR, AGENT, (*POD, "nodeSelector"), SELECTOR),
    ("agent_tolerations", TOLERATIONS, AGENT, (*POD, "tolerations"), TOLERATIONS),
    ("agent_resources", RESOURCES, AGENT, (*PROGRAM, "resources"), RESOURCES),
    ("default_node_agent", LOCAL, "LBNodeAgent default", ("spec",), LOCAL),
    ("eviction_limit", "2", ALLOCATOR, (*PROGRAM, "env", "PURELB_EVICTION_LIMIT"), "2"),
    ("allocator_replicas", 3, ALLOCATOR, ("spec", "replicas"), 3),
    ("allocator_node_selector", SELECTOR, ALLOCATOR, (*POD, "nodeSelector"), SELECTOR),
    ("allocator_tolerations", TOLERATIONS, ALLOCATOR, (*POD, "tolerations"), TOLERATIONS),
    ("allocator_resources", RESOURCES, ALLOCATOR, (*PROGRAM, "resources"), RESOURCES),
    ("allocator_sidecars", [SIDECAR], ALLOCATOR, (*POD, "containers", 1), SIDECAR),
    ("allocator_volumes", [VOLUME], ALLOCATOR, (*POD, "volumes", 2), VOLUME),
    ("netbox_secret", "nb", ALLOCATOR, (*POD, "volumes", 1, "secret", "secretName"), "nb"),
]


def rendered(folder: Path, **variables: Any) -> dict[str, dict[str, Any]]:
    """Return the objects that the role writes with these variables, by kind and name."""
    given = {f"purelb_install_{name}": value for name, value in variables.items()}
    given["purelb_install_manifests_dir"] = str(folder)
    run_ansible("purelb.purelb.install", "-e", json.dumps(given))
    listed = yaml.safe_load((folder / "kustomization.yaml").read_text())["resources"]
    texts = [(folder / name).read_text() for name in listed]
    objects = [obj for text in texts for obj in yaml.safe_load_all(text)]
    return {f"{obj['kind']} {obj['metadata']['name']}": obj for obj in objects}


@pytest.fixture(scope="module")
def usual(tmp_path_factory):
    """The manifests with default values, except the namespace, which is in names."""
    return rendered(tmp_path_factory.mktemp("usual"), namespace="lb")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """The manifests with every variable of the table."""
    values = {name: value for name, value, *_where in ROWS}
    return rendered(tmp_path_factory.mktemp("tuned"), **values)


def find(objects: dict[str, dict[str, Any]], name: str, path: tuple[Any, ...]) -> Any:
    """Return the value at a path, or None; entries of `env` are found by name."""
    there: Any = objects.get(name)
    for step in path:
        if isinstance(there, list) and isinstance(step, str):
            there = {entry["name"]: entry.get("value") for entry in there}
        if there is None or (isinstance(there, list) and len(there) <= step):
            return None
        there = there.get(step) if isinstance(there, dict) else there[step]
    return there


@pytest.mark.parametrize(
    ("variable", "name", "path", "expected"),
    [pytest.param(v, n, p, e, id=f"{v}-{n.split()[0]}-{p[-1:]}") for v, _x, n, p, e in ROWS],
)
def test_variable_has_its_effect_in_the_manifests(usual, tuned, variable, name, path, expected):
    assert find(tuned, name, path) == expected
    if variable != "namespace":
        assert find(usual, name, path) != expected


def test_sidecars_of_the_allocator_get_no_token(tuned):
    pod = find(tuned, "Deployment allocator", POD)
    assert pod["automountServiceAccountToken"] is False
    mounts = {c["name"]: [m["name"] for m in c.get("volumeMounts", ())] for c in pod["containers"]}
    assert mounts.keys() == {"allocator", "ipam"}
    with_token = {name for name, volumes in mounts.items() if "api-access" in volumes}
    assert with_token == {"allocator"}


def test_a_folder_from_before_keeps_what_it_says_of_labelled_nodes(tmp_path):
    path = (*PROGRAM, "env", "PURELB_EXCLUDE_LABELLED_NODES")
    agents = tmp_path / "daemonset.yaml"
    assert find(rendered(tmp_path), AGENT, path) == "on"
    assert find(rendered(tmp_path), AGENT, path) == "on"
    assert find(rendered(tmp_path, exclude_labelled_nodes=False), AGENT, path) == "off"
    assert find(rendered(tmp_path), AGENT, path) == "off"
    # As an earlier version wrote it.
    agents.write_text(agents.read_text().replace("PURELB_EXCLUDE_LABELLED_NODES", "PURELB_OTHER"))
    assert find(rendered(tmp_path), AGENT, path) == "off"
    assert find(rendered(tmp_path, exclude_labelled_nodes=True), AGENT, path) == "on"


def test_every_variable_has_a_test():
    tested = {f"purelb_install_{name}" for name in [*ELSEWHERE, *(row[0] for row in ROWS)]}
    assert tested == DEFAULTS.keys()


def test_everything_is_in_the_configured_namespace(tuned):
    named = {
        obj["metadata"]["namespace"] for obj in tuned.values() if "namespace" in obj["metadata"]
    }
    subjects = [s for obj in tuned.values() for s in obj.get("subjects") or ()]
    # Events about Nodes are in `default`, and so is the permission to watch them.
    elsewhere = {
        name for name, obj in tuned.items() if obj["metadata"].get("namespace") == "default"
    }
    assert elsewhere == {"Role purelb:lb:allocator", "RoleBinding purelb:lb:allocator"}
    assert named - {"default"} | {subject["namespace"] for subject in subjects} == {"lb"}


def test_without_draining_no_permission_to_write_nodes(usual, tuned):
    def rules(objects):
        return [rule for obj in objects.values() for rule in obj.get("rules") or ()]

    def writes(objects):
        return any("nodes" in r["resources"] and "patch" in r["verbs"] for r in rules(objects))

    assert writes(usual)
    assert not writes(tuned)


def test_no_manifest_contains_a_secret(usual):
    assert not [name for name in usual if name.startswith("Secret ")]

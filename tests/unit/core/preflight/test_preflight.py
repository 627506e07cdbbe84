# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What stops an installation, what is only said, and what an upgrade takes as it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.preflight.controllers import Controller, Pod
from purelb.core.preflight.preflight import (
    Existing,
    Namespace,
    Obstacle,
    ProxyMode,
    Seen,
    Wanted,
    may_label,
    obstacles,
)

LINUX = {"kubernetes.io/os": "linux"}
WANTED = Wanted("purelb-system", 7472, LINUX)
EXISTING = Existing(7472, claims_unclassed=True)
METALLB = Controller("metallb", "MetalLB", "Pod m/c", takes_all=True, way="start it otherwise")
SPEAKER = Pod("metallb-system", "speaker-1", node="n1", host_ports=frozenset({7472, 7946}))
NODES = {"n1": LINUX, "w1": {"kubernetes.io/os": "windows"}}
REFUSED = 'pods "x" is forbidden: violates PodSecurity "baseline:latest": host namespaces'


def only(
    seen: Seen,
    *accepted: str,
    wanted: Wanted = WANTED,
    existing: Existing | None = None,
) -> Obstacle:
    (found,) = obstacles(wanted, existing, seen, accepted=frozenset(accepted))
    return found


def test_nothing_is_said_of_an_empty_cluster():
    assert obstacles(WANTED, None, Seen()) == ()


def test_what_stops_comes_first():
    seen = Seen(service_proxy=ProxyMode("ipvs"), controllers=(METALLB,), unread=("not allowed",))
    found = obstacles(WANTED, None, seen)
    assert [(each.name, each.stops) for each in found] == [
        ("metallb", True),
        ("strictARP", False),
        ("unread", False),
    ]


def test_a_second_installation_is_refused_whatever_is_accepted():
    found = only(Seen(installations=("a", "b")), "otherInstallation", existing=EXISTING)
    assert found.stops
    assert "in namespace a, b already" in found.message


def test_another_controller_stops_an_installation_that_would_claim_the_same_services():
    seen = Seen(controllers=(METALLB,))
    assert only(seen).stops
    assert only(seen).remediation.startswith("Either start it otherwise; or set")
    assert not only(seen, "metallb").stops
    assert not only(seen, existing=EXISTING).stops
    assert only(seen, existing=replace(EXISTING, claims_unclassed=False)).stops
    assert not obstacles(replace(WANTED, claims_unclassed=False), None, seen)
    assert not obstacles(WANTED, None, Seen(controllers=(replace(METALLB, takes_all=False),)))


def test_a_port_that_others_have_is_not_taken_from_them():
    seen = Seen(pods=(SPEAKER, replace(SPEAKER, node="")), nodes=NODES)
    found = only(seen)
    assert found.stops
    assert found.message.startswith("port 7472 of n1, no node yet is taken by Pod metallb-system/")
    assert found.remediation.endswith("such as 7474")
    assert not only(seen, "port").stops
    assert not only(seen, existing=EXISTING).stops
    assert only(seen, existing=replace(EXISTING, port=7474)).stops
    assert not obstacles(replace(WANTED, port=7474), None, seen)
    # Without the right to read Nodes, each may be one for an agent.
    assert only(Seen(pods=(SPEAKER,))).stops


@pytest.mark.parametrize(
    "pod",
    [
        replace(SPEAKER, node="w1"),
        replace(SPEAKER, namespace="purelb-system", labels={"app.kubernetes.io/name": "purelb"}),
    ],
    ids=["where no agent runs", "our own"],
)
def test_ports_that_hinder_no_agent(pod: Pod):
    assert not obstacles(WANTED, None, Seen(pods=(pod,), nodes=NODES))


@pytest.mark.parametrize("level", ["baseline", "restricted"])
def test_pod_security_is_not_lowered_without_being_told(level: str):
    for is_ours in (False, True):
        seen = Seen(namespace=Namespace(is_ours=is_ours, level=level), refusal=REFUSED)
        found = only(seen, existing=EXISTING)
        assert found.stops
        assert f"enforces {level}" in found.message
        assert not only(seen, "podSecurity").stops
    unmanaged = replace(WANTED, labels_namespace=False)
    found = only(seen, "podSecurity", wanted=unmanaged)
    assert found.stops
    assert found.remediation.startswith("Run kubectl label namespace purelb-system")


def test_the_default_of_a_cluster_counts_where_the_role_sets_no_label():
    seen = Seen(namespace=Namespace(), refusal=REFUSED)
    assert "enforces its default" in only(seen).message
    assert not obstacles(WANTED, None, replace(seen, namespace=Namespace(is_ours=True)))
    assert not obstacles(WANTED, None, Seen(namespace=Namespace(level="privileged")))


def test_a_quota_or_a_webhook_stops_a_new_installation():
    seen = Seen(namespace=Namespace(is_ours=True), refusal="exceeded quota: none")
    assert only(seen).stops
    assert "exceeded quota: none" in only(seen).message
    assert not only(seen, "admission").stops
    assert not only(seen, existing=EXISTING).stops


def test_a_namespace_that_nobody_makes():
    found = only(Seen(), wanted=replace(WANTED, labels_namespace=False))
    assert (found.name, found.stops) == ("namespace", True)


def test_addresses_of_others_are_named_before_they_are_taken_over():
    seen = Seen(others={"controller": ("a/b",), "kubectl": ("c/d", "e/f")})
    first, second = obstacles(WANTED, None, seen)
    assert first.message.startswith("controller has given addresses to one Service without")
    assert "2 Services without a loadBalancerClass: c/d, e/f" in second.message
    assert not obstacles(WANTED, EXISTING, seen)
    assert not obstacles(replace(WANTED, claims_unclassed=False), None, seen)


def test_strict_arp_is_only_for_ipvs():
    assert only(Seen(service_proxy=ProxyMode("ipvs"))).name == "strictARP"
    assert not obstacles(WANTED, None, Seen(service_proxy=ProxyMode("ipvs", True)))


@pytest.mark.parametrize(
    ("namespace", "accepted", "expected"),
    [
        (None, (), True),
        (Namespace(is_ours=True), (), True),
        (Namespace(), (), False),
        (Namespace(), ("podSecurity",), True),
    ],
)
def test_a_namespace_of_others_keeps_its_labels(
    namespace: Namespace | None, accepted: tuple[str, ...], *, expected: bool
):
    assert may_label(WANTED, namespace, frozenset(accepted)) == expected
    assert not may_label(replace(WANTED, labels_namespace=False), namespace, frozenset(accepted))

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Installed where something else serves, and removed where something else is."""

from __future__ import annotations

from typing import Any

import pytest

from labkit.lab import Lab
from tests.support.lab.accounts import objects_applied
from tests.support.lab.cluster_queries import IMAGE, addresses_of, eventually

pytestmark = pytest.mark.timeout(300)
SPEAKERS = "/api/v1/namespaces/metallb-system/pods"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
PODS = "/api/v1/namespaces/purelb-system/pods"
HOME = "/api/v1/namespaces/purelb-system"
LABELS = {"app": "metallb", "component": "speaker"}
# As MetalLB's manifest makes them: on the host's network, with our usual port, without a priority.
SPEAKER: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "DaemonSet",
    "metadata": {"name": "speaker", "namespace": "metallb-system"},
    "spec": {
        "selector": {"matchLabels": LABELS},
        "template": {
            "metadata": {"labels": LABELS},
            "spec": {
                "hostNetwork": True,
                "terminationGracePeriodSeconds": 0,
                "containers": [
                    {
                        "name": "speaker",
                        "image": "registry.example.com/metallb/speaker:v0.15.2",
                        "imagePullPolicy": "Never",
                        "ports": [{"name": "monitoring", "containerPort": 7472}],
                    }
                ],
            },
        },
    },
}
GIVEN = ["172.28.1.150", "fd28:0:0:1::150"]
GROUP = {
    "apiVersion": "purelb.io/v2",
    "kind": "ServiceGroup",
    "metadata": {"name": "default", "namespace": "purelb-system"},
    "spec": {
        "local": {
            "v4pool": {"pool": "172.28.1.140-172.28.1.160", "subnet": "172.28.1.0/24"},
            "v6pool": {
                "pool": "fd28:0:0:1::140-fd28:0:0:1::160",
                "subnet": "fd28:0:0:1::/64",
            },
        }
    },
}
SERVICE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "theirs", "namespace": "default"},
    "spec": {
        "type": "LoadBalancer",
        "ipFamilyPolicy": "RequireDualStack",
        "ports": [{"port": 80}],
    },
}
NOTES = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "notes", "namespace": "elsewhere"},
    "data": {"theirs": "yes"},
}


def namespace(name: str, **labels: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def install(playbook, *settings: str, check: bool = True) -> tuple[bool, str]:
    """Run the role with settings; return whether it succeeded, and what it said on one line."""
    given = (f"purelb_install_image={IMAGE}", *settings)
    options = [part for setting in given for part in ("-e", setting)]
    done = playbook("purelb.purelb.install", *options, check=check)
    return done.returncode == 0, " ".join((done.stdout + done.stderr).split())


def is_untouched(lab: Lab) -> bool:
    """Whether nothing of PureLB is there."""
    definitions = lab.api.items(DEFINITIONS)
    return not any(obj["metadata"]["name"].endswith("purelb.io") for obj in definitions)


def placed(lab: Lab) -> set[str]:
    """Return the uids of MetalLB's speakers that are on nodes."""
    pods = lab.api.items(SPEAKERS)
    return {pod["metadata"]["uid"] for pod in pods if pod["spec"].get("nodeName")}


# First: the others run without PureLB.
def test_second_installation(cluster, playbook, make_service):
    service = make_service()
    served = eventually(lambda: addresses_of(cluster, service), "addresses")
    there = "purelb_install_namespace=elsewhere"
    with objects_applied(cluster, [namespace("elsewhere"), NOTES]):
        worked, said = install(playbook, there, check=False)
        assert not worked
        assert "has installed PureLB in namespace purelb-system already" in said
        for remove in ("false", "true"):
            _, said = install(
                playbook,
                there,
                "purelb_install_state=absent",
                f"purelb_install_remove_crds={remove}",
            )
            assert "PureLB is also installed in namespace purelb-system" in said
            assert "The namespace elsewhere stays: it has not the labels" in said
        assert cluster.api.exists(cluster.api.path_of(NOTES))
        assert addresses_of(cluster, service) == served


def test_next_to_metallb(lab_without_purelb, playbook):
    lab = lab_without_purelb
    with objects_applied(lab, [namespace("metallb-system"), SPEAKER]):
        eventually(lambda: len(placed(lab)) == len(lab.nodes), "a speaker on each node", seconds=60)
        speakers = placed(lab)
        for options in ((), ("purelb_install_accept=metallb",)):
            worked, said = install(playbook, *options, check=False)
            assert not worked
            assert "Nothing was changed" in said
            assert "port 7472 of " in said
            assert "metallb-system/speaker-" in said
            assert "Set purelb_install_metrics_port to a free one" in said
            assert "start its controller and its speakers with --lb-class" in said
            assert is_untouched(lab)
        _, said = install(
            playbook, "purelb_install_claim_unclassed=false", "purelb_install_metrics_port=7474"
        )
        assert "metallb:" not in said
        service = lab.api.create(SERVICE)
        theirs = lab.api.path_of(service)
        entries = [{"ip": address} for address in GIVEN]
        lab.api.merge_patch(f"{theirs}/status", {"status": {"loadBalancer": {"ingress": entries}}})
        assert speakers == placed(lab)
    # MetalLB is gone, and its Services keep their addresses.
    lab.api.create(GROUP)
    _, said = install(playbook)
    assert "addresses: " in said
    assert addresses_of(lab, theirs) == GIVEN
    lab.api.delete(theirs)
    _, said = install(playbook, "purelb_install_state=absent", "purelb_install_remove_crds=true")
    assert "stay" not in said
    assert not lab.api.exists(HOME)
    assert is_untouched(lab)


def test_where_pods_are_refused(lab_without_purelb, playbook):
    lab = lab_without_purelb
    level = {"pod-security.kubernetes.io/enforce": "baseline"}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "none", "namespace": "purelb-system"},
        "spec": {"hard": {"pods": "0"}},
    }
    with objects_applied(lab, [namespace("purelb-system", **level)]):
        worked, said = install(playbook, check=False)
        assert not worked
        assert "podSecurity: Pod security in namespace purelb-system enforces baseline" in said
        assert is_untouched(lab)
        lab.api.merge_patch(HOME, {"metadata": {"labels": {next(iter(level)): None}}})
        path = lab.api.path_of(lab.api.create(quota))
        lab.api.wait(path, lambda seen: "hard" in seen.get("status", {}), what="quota", seconds=30)
        worked, said = install(playbook, check=False)
        assert not worked
        assert "exceeded quota: none" in said
        assert is_untouched(lab)
        # Told to continue, it ends with the reason of the controllers.
        options = ("purelb_install_accept=admission", "purelb_install_wait_timeout=10")
        worked, said = install(playbook, *options, check=False)
        assert not worked
        assert "FailedCreate" in said
        assert "exceeded quota: none" in said
        lab.api.delete(path)
        _, said = install(playbook)
        # It was there before, and stays as it was made.
        labels = lab.api.get(HOME)["metadata"]["labels"]
        assert not any("purelb" in text for text in labels.values() if text != "purelb-system")
        _, said = install(playbook, "purelb_install_state=absent")
        assert "The namespace purelb-system stays: it has not the labels" in said
        assert is_untouched(lab)


def test_namespace_of_the_role_stays_while_others_use_it(lab_without_purelb, playbook):
    lab = lab_without_purelb
    install(playbook)
    notes = {**NOTES, "metadata": {"name": "notes", "namespace": "purelb-system"}}
    lab.api.create(notes)
    _, said = install(playbook, "purelb_install_state=absent")
    assert "The namespace purelb-system stays: it contains ConfigMap notes" in said
    assert lab.api.exists(lab.api.path_of(notes))
    lab.api.delete(lab.api.path_of(notes))
    _, said = install(playbook, "purelb_install_state=absent")
    assert not lab.api.exists(HOME)

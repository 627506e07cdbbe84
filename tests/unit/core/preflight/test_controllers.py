# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which programs are taken for controllers of load balancers, and which of these take all."""

from __future__ import annotations

import json
from typing import Any

import pytest

from purelb.core.preflight import controllers


def pod(*images: str, **spec: Any) -> dict[str, Any]:
    first = {"image": images[0], **spec}
    rest = [{"image": image} for image in images[1:]]
    return {
        "metadata": {"namespace": "there", "name": "one", "labels": {"app": "x"}},
        "spec": {"nodeName": "n1", "containers": [first, *rest]},
    }


def on(**variables: str) -> list[dict[str, str]]:
    return [{"name": name, "value": value} for name, value in variables.items()]


# Name of the controller, whether it takes Services without a class, and its Pod.
KNOWN = [
    ("metallb", True, pod("quay.io/metallb/controller:v0.15.2", args=["--port=7472"])),
    ("metallb", False, pod("mirror:5000/metallb/speaker@sha256:1", args=["--lb-class=metallb"])),
    ("kube-vip", True, pod("ghcr.io/kube-vip/kube-vip:v0.8.9", env=on(svc_enable="true"))),
    ("kube-vip", True, pod("mirror/kube-vip-cloud-provider:v0.0.12")),
    ("kube-vip", False, pod("kube-vip:1", env=on(svc_enable="True", lb_class_only="true"))),
    (
        "kube-vip",
        False,
        pod("kube-vip-iptables:1", env=on(svc_enable="1", lb_class_legacy_handling="false")),
    ),
    ("servicelb", True, pod("rancher/klipper-lb:v0.4.13", "rancher/klipper-lb:v0.4.13")),
    ("openelb", True, pod("docker.io/openelb/openelb:v0.6.0")),
    ("kube-router", True, pod("cloudnativelabs/kube-router", args=["--run-loadbalancer=true"])),
    ("aws-load-balancer-controller", True, pod("public/eks/aws-load-balancer-controller:v2.9")),
    ("cloud-controller", True, pod("registry/openstack-cloud-controller-manager:v1.33.0")),
    (
        "cloud-controller",
        True,
        pod("hcloud-cloud-controller-manager", command=["run", "--controllers=*,-route"]),
    ),
    ("purelb", True, pod("ghcr.io/purelb/purelb/lbnodeagent:v0.16.0")),
]
OTHERS = [
    # Only the address of the API server.
    pod("ghcr.io/kube-vip/kube-vip:v0.8.9", env=on(cp_enable="true", svc_enable="false")),
    pod("kube-vip:1", env=[{"name": "svc_enable", "valueFrom": {}}]),
    pod("cloudnativelabs/kube-router:v2", args=["--run-router=true"]),
    pod("cloud-controller-manager:1", command=["--controllers=*,-service"]),
    pod("cloud-controller-manager:1", command=["--controllers=cloud-node,node-route"]),
    pod("hcloud-cloud-controller-manager", env=on(HCLOUD_LOAD_BALANCERS_ENABLED="false")),
    pod("rancher/rke2-cloud-provider:v1.33"),
    pod("localhost/purelb/purelb:0.1.0"),
    pod("quay.io/cilium/operator-generic:v1.17"),
]


@pytest.mark.parametrize(("name", "takes_all", "body"), KNOWN)
def test_a_known_controller_is_found_by_what_it_runs(
    name: str,
    takes_all: bool,  # noqa: FBT001 - a parameter
    body: dict[str, Any],
):
    (found,) = controllers.controllers_of([controllers.pod_of(body)])
    assert (found.name, found.takes_all) == (name, takes_all)
    assert found.seen == "Pod there/one"


def test_others_are_none():
    assert not list(controllers.controllers_of(map(controllers.pod_of, OTHERS)))


def test_of_several_pods_the_one_without_limits_is_named():
    limited = controllers.pod_of(pod("metallb/speaker", args=["--lb-class=a"]))
    body = pod("metallb/controller")
    body["metadata"]["name"] = "two"
    (found,) = controllers.controllers_of([limited, controllers.pod_of(body)])
    assert found.takes_all
    assert found.seen == "Pod there/two"


def test_record_of_a_pod():
    ports = [{"containerPort": 7472, "hostPort": 7472}, {"containerPort": 80}]
    found = controllers.pod_of(pod("a", ports=ports))
    assert found.host_ports == {7472}
    assert found.node == "n1"
    assert not found.has_ended
    assert controllers.pod_of({**pod("a"), "status": {"phase": "Succeeded"}}).has_ended
    bare = {"metadata": {"namespace": "a", "name": "b"}, "spec": {}}
    assert controllers.pod_of(bare) == controllers.Pod("a", "b")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["server"], True),
        (["server", "--disable", "traefik"], True),
        (["server", "--disable", "traefik,servicelb"], False),
        (["server", "--disable=servicelb"], False),
        (["server", "--disable-cloud-controller"], False),
        (["agent"], False),
        ([], False),
        (5, False),
    ],
)
def test_servicelb_of_k3s_is_on_unless_it_is_switched_off(arguments: Any, expected: bool):  # noqa: FBT001 - a parameter
    annotations = {"k3s.io/node-args": json.dumps(arguments)}
    assert controllers.has_servicelb(annotations) == expected


def test_nodes_of_others_have_no_servicelb():
    assert not controllers.has_servicelb({})
    assert not controllers.has_servicelb({"k3s.io/node-args": "{"})


def test_controllers_that_are_known_by_nodes_and_pools():
    assert controllers.servicelb("n1").seen == "the k3s server n1 runs without --disable=servicelb"
    assert controllers.pools_of_cilium(("a", "b")).seen == "CiliumLoadBalancerIPPool a"
    assert controllers.pools_of_calico(("a",)).name == "calico"

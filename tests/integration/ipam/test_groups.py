# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Services with addresses from a NetBox or a sidecar: allocation, release, refusal."""

from __future__ import annotations

import base64
import json
import sys

import pytest

from tests.support import ROOT
from tests.support.lab.cluster_queries import (
    AGENTS,
    IMAGE,
    address_info,
    allocator_pods,
    answers,
    eventually,
    holder,
    ingress,
)

STANDIN = ROOT / "tests/support/netbox/standin.py"
GROUPS = "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups"
EVENTS = "/api/v1/namespaces/default/events"
PORT = 8000
TOKEN = "a" * 40
# By family: its name, the sidecar's address, NetBox's address and its prefix length.
V4 = ("IPv4", "172.28.1.251", "10.91.1.5", 24)
V6 = ("IPv6", "fd28:0:0:1::251", "fd91::5", 64)
FAMILIES = [pytest.param(V4, id="v4"), pytest.param(V6, id="v6")]
# More than the sum of the waits: the first test also installs, and a status may take 70 s.
pytestmark = pytest.mark.timeout(240)


def named(kind, name, **more):
    meta = {"name": name, "namespace": "purelb-system"}
    return {"apiVersion": "v1", "kind": kind, "metadata": meta, **more}


@pytest.fixture(scope="module")
def sidecar(cluster, playbook):
    """The allocator with the sample sidecar and a NetBox token."""
    code = (ROOT / "demo/ipam/server.py").read_text()
    sample = named("ConfigMap", "ipam-sample", data={"server.py": code})
    token = base64.b64encode(TOKEN.encode()).decode()
    secret = named("Secret", "purelb-netbox", data={"token": token})
    for body in (sample, secret):
        cluster.api.apply(body)
    ranges = [f"{address}-{address}" for address in (V4[1], V6[1])]
    container = {
        "name": "ipam",
        "image": IMAGE,
        "command": ["python3", "/sample/server.py", "--file", "/var/run/purelb/given.json"],
        "args": ranges,
        "securityContext": {"runAsUser": 65532, "runAsGroup": 65532},
        "volumeMounts": [
            {"name": "ipam", "mountPath": "/var/run/purelb"},
            {"name": "sample", "mountPath": "/sample"},
        ],
    }
    settings = {
        "purelb_install_image": IMAGE,
        "purelb_install_allocator_replicas": 1,
        "purelb_install_allocator_volumes": [
            {"name": "sample", "configMap": {"name": "ipam-sample"}}
        ],
        "purelb_install_allocator_sidecars": [container],
    }
    playbook("purelb.purelb.install", "-e", json.dumps(settings))
    eventually(lambda: len(allocator_pods(cluster)) == 1, "one allocator alone", seconds=60)
    group = {"external": {"provider": "sample", "announce": "local"}}
    cluster.api.apply(
        {**named("ServiceGroup", "sidecar", spec=group), "apiVersion": "purelb.io/v2"}
    )
    yield
    cluster.api.delete(f"{GROUPS}/sidecar")
    playbook("purelb.purelb.install", "-e", f"purelb_install_image={IMAGE}")
    for body in (sample, secret):
        cluster.api.delete(cluster.api.path_of(body))


@pytest.fixture(scope="module")
def netbox(cluster, sidecar):
    """A fake NetBox at the client's address with a group; returns its records by address."""
    argv = [sys.executable, str(STANDIN), str(PORT)]
    argv += [f"{address}/{mask}" for _name, _local, address, mask in (V4, V6)]
    process = cluster.popen_in("client", argv)
    url = f"http://{cluster.hosts['client'].v4}:{PORT}"
    group = {"netbox": {"url": url, "tenant": "lab"}}
    cluster.api.apply({**named("ServiceGroup", "netbox", spec=group), "apiVersion": "purelb.io/v2"})

    def records():
        curl = ["curl", "-sS", "--fail", "-H", f"Authorization: Token {TOKEN}"]
        done = cluster.run_in("client", [*curl, f"{url}/api/ipam/ip-addresses/"])
        return {
            record["address"]: (record["status"]["value"], record["description"])
            for record in json.loads(done.stdout)["results"]
        }

    eventually(lambda: _succeeds(records), "NetBox")
    yield records
    cluster.api.delete(f"{GROUPS}/netbox")
    process.kill()
    process.wait()


def _succeeds(look):
    try:
        return bool(look())
    except AssertionError:
        raise
    except Exception:  # noqa: BLE001 - any error of a server that is starting
        return False


@pytest.fixture
def ask(make_service):
    """Creates a Service of one family with a group; returns its path."""

    def make(family, group, **more):
        annotations = {"purelb.io/service-group": group, **more}
        return make_service("SingleStack", annotations=annotations, ipFamilies=[family[0]])

    return make


def given(cluster, path, *, seconds=20):
    service = cluster.api.wait(path, ingress, what="an address", seconds=seconds)
    return ingress(service)


def refusals(cluster, path):
    uid = cluster.api.get(path)["metadata"]["uid"]
    selector = f"reason=AllocationFailed,involvedObject.uid={uid}"
    return " ".join(e["message"] for e in cluster.api.items(EVENTS, fieldSelector=selector))


def in_use(cluster, group, family):
    return cluster.api.get(f"{GROUPS}/{group}").get("status", {}).get(f"allocated{family[0]}")


@pytest.mark.parametrize("family", FAMILIES)
def test_sidecars_address_is_announced_by_one_node_and_answers(cluster, sidecar, ask, family):
    path = ask(family, "sidecar")
    assert given(cluster, path) == [family[1]]
    node = holder(cluster, family[1])
    expected = 24 if family is V4 else 64
    assert address_info(cluster, node, family[1])["prefixlen"] == expected
    assert eventually(lambda: answers(cluster, family[1]), "an answer")
    eventually(lambda: in_use(cluster, "sidecar", family) == 1, "one in use", seconds=70)
    status = cluster.api.get(f"{GROUPS}/sidecar")["status"]
    assert (status["announce"], status["ipam"]) == ("Local", "sample")


@pytest.mark.parametrize("family", FAMILIES)
def test_refused_service_gets_a_released_address(cluster, sidecar, ask, family):
    first = ask(family, "sidecar")
    assert given(cluster, first) == [family[1]]
    second = ask(family, "sidecar")
    eventually(lambda: "no address is left" in refusals(cluster, second), "a refusal")
    cluster.api.delete(first)
    assert given(cluster, second, seconds=60) == [family[1]]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.expects_errors("Unavailable")
def test_restarted_sidecar_is_used_again(cluster, sidecar, ask, family):
    pod = allocator_pods(cluster)[0]
    cluster.api.wait(
        f"{AGENTS}/{pod['metadata']['name']}",
        lambda p: all(c["ready"] for c in p["status"]["containerStatuses"]),
        what="allocator and sidecar",
    )
    found = next(c for c in cluster.containers(pod["spec"]["nodeName"]) if c.name == "ipam")
    cluster.run_in(pod["spec"]["nodeName"], ["kill", "-9", str(found.pid)])
    path = ask(family, "sidecar")
    assert given(cluster, path, seconds=60) == [family[1]]


@pytest.mark.parametrize("family", FAMILIES)
def test_netbox_address_is_on_every_node_with_its_mask_until_released(cluster, netbox, ask, family):
    _name, _local, address, mask = family
    path = ask(family, "netbox")
    assert given(cluster, path) == [address]
    status, description = netbox()[f"{address}/{mask}"]
    assert status == "active"
    assert description.startswith("purelb ")
    assert description.endswith(f" default/{path.rpartition('/')[2]}")
    eventually(lambda: cluster.holders(address) == set(cluster.nodes), "the address on every node")

    def masks():
        return {address_info(cluster, n, address).get("prefixlen") for n in cluster.nodes}

    eventually(lambda: masks() == {mask}, "the mask of NetBox", seconds=70)
    cluster.api.delete(path)
    eventually(lambda: netbox()[f"{address}/{mask}"] == ("reserved", ""), "a reserved address")
    eventually(lambda: not cluster.holders(address), "withdrawal")


@pytest.mark.parametrize("family", FAMILIES)
def test_address_unknown_to_netbox_is_refused_with_the_remedy(cluster, netbox, ask, family):
    other = "10.91.1.99" if family is V4 else "fd91::99"
    path = ask(family, "netbox", **{"purelb.io/addresses": other})
    eventually(
        lambda: f"{other} is no address of tenant lab: add it" in refusals(cluster, path),
        "a refusal",
    )

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Services with addresses from a NetBox or a sidecar: allocation, release, refusal."""

from __future__ import annotations

import base64
import json
import sys

import pytest

from labkit.probe.addresses import nodes_with
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
# Of each family: its name, the sidecar's address, NetBox's address and its prefix length.
FAMILIES = [
    ("IPv4", "172.28.1.251", "10.91.1.5", 24),
    ("IPv6", "fd28:0:0:1::251", "fd91::5", 64),
]
LOCAL, REMOTE, MASKS = ([family[field] for family in FAMILIES] for field in (1, 2, 3))
ENTRIES = [f"{address}/{mask}" for address, mask in zip(REMOTE, MASKS, strict=True)]
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
    ranges = [f"{address}-{address}" for address in LOCAL]
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
    process = cluster.popen_in("client", [sys.executable, str(STANDIN), str(PORT), *ENTRIES])
    url = f"http://{cluster.hosts['client'].v4}:{PORT}"
    group = {"netbox": {"url": url, "tenant": "lab", "allowHTTP": True}}
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
    """Creates a Service, by default dual-stack, with a group; returns its path."""

    def make(group, *policy, annotations=None, **spec):
        named = {"purelb.io/service-group": group, **(annotations or {})}
        return make_service(*policy, annotations=named, **spec)

    return make


def given(cluster, path, *, seconds=20):
    """Wait until the Service has an address of each family; return them."""
    service = cluster.api.wait(
        path, lambda s: len(ingress(s)) == len(FAMILIES), what="both addresses", seconds=seconds
    )
    return ingress(service)


def refusals(cluster, path):
    uid = cluster.api.get(path)["metadata"]["uid"]
    selector = f"reason=AllocationFailed,involvedObject.uid={uid}"
    return " ".join(e["message"] for e in cluster.api.items(EVENTS, fieldSelector=selector))


def in_use(cluster, group):
    """Return the numbers of addresses in use that the group's status has, by family."""
    status = cluster.api.get(f"{GROUPS}/{group}").get("status", {})
    return [status.get(f"allocated{family}") for family, *_more in FAMILIES]


def prefixes(cluster, node, addresses):
    return [address_info(cluster, node, address).get("prefixlen") for address in addresses]


def test_sidecars_addresses_are_each_announced_by_one_node_and_answer(cluster, sidecar, ask):
    path = ask("sidecar")
    assert given(cluster, path) == LOCAL
    for address, length in zip(LOCAL, (32, 128), strict=True):
        assert prefixes(cluster, holder(cluster, address), [address]) == [length]
        assert eventually(lambda a=address: answers(cluster, a), f"an answer from {address}")
    eventually(lambda: in_use(cluster, "sidecar") == [1, 1], "one of each in use", seconds=70)
    status = cluster.api.get(f"{GROUPS}/sidecar")["status"]
    assert (status["announce"], status["ipam"]) == ("Local", "sample")


def test_refused_service_gets_released_addresses(cluster, sidecar, ask):
    first = ask("sidecar")
    assert given(cluster, first) == LOCAL
    second = ask("sidecar")
    eventually(lambda: "no address is left" in refusals(cluster, second), "a refusal")
    cluster.api.delete(first)
    assert given(cluster, second, seconds=60) == LOCAL


@pytest.mark.thorough
@pytest.mark.expects_errors("Unavailable")
def test_restarted_sidecar_is_used_again(cluster, sidecar, ask):
    pod = allocator_pods(cluster)[0]
    cluster.api.wait(
        f"{AGENTS}/{pod['metadata']['name']}",
        lambda p: all(c["ready"] for c in p["status"]["containerStatuses"]),
        what="allocator and sidecar",
    )
    found = next(c for c in cluster.containers(pod["spec"]["nodeName"]) if c.name == "ipam")
    cluster.run_in(pod["spec"]["nodeName"], ["kill", "-9", str(found.pid)])
    assert given(cluster, ask("sidecar"), seconds=60) == LOCAL


def test_netbox_addresses_are_on_every_node_with_their_masks_until_released(cluster, netbox, ask):
    path = ask("netbox")
    assert given(cluster, path) == REMOTE
    for entry in ENTRIES:
        status, description = netbox()[entry]
        assert status == "active"
        assert description.startswith("purelb ")
        assert description.endswith(f" default/{path.rpartition('/')[2]}")
    everywhere = set(cluster.nodes)
    eventually(
        lambda: all(nodes_with(cluster, a) == everywhere for a in REMOTE), "both on every node"
    )
    eventually(
        lambda: all(prefixes(cluster, n, REMOTE) == MASKS for n in cluster.nodes),
        "the masks of NetBox",
        seconds=70,
    )
    cluster.api.delete(path)
    reserved = ("reserved", "")
    eventually(lambda: all(netbox()[e] == reserved for e in ENTRIES), "reserved addresses")
    eventually(lambda: not any(nodes_with(cluster, a) for a in REMOTE), "withdrawal")


@pytest.mark.thorough
@pytest.mark.parametrize(("family", "other"), [("IPv4", "10.91.1.99"), ("IPv6", "fd91::99")])
def test_address_unknown_to_netbox_is_refused_with_the_remedy(cluster, netbox, ask, family, other):
    wanted = {"purelb.io/addresses": other}
    path = ask("netbox", "SingleStack", annotations=wanted, ipFamilies=[family])
    eventually(
        lambda: f"{other} is no address of tenant lab: add it" in refusals(cluster, path),
        "a refusal",
    )

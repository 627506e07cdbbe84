# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Clients of the v1 and v2 APIs side by side, with and without the conversion webhook."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count

import pytest

from labkit.api import ApiError
from labkit.cluster.control import ETCD
from labkit.images.programs import programs
from tests.support.lab.cluster_queries import AGENTS as PODS
from tests.support.lab.cluster_queries import addresses_of, allocator_pods, eventually
from tests.support.lab.faults import is_ready

pytestmark = pytest.mark.timeout(120)
GROUPS = "/apis/purelb.io/{}/namespaces/purelb-system/servicegroups"
AGENTS = "/apis/purelb.io/{}/namespaces/purelb-system/lbnodeagents"
DEPLOYMENT = "/apis/apps/v1/namespaces/purelb-system/deployments/allocator"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/purelb-system/endpointslices"
SERVICE = "/api/v1/namespaces/purelb-system/services/purelb-conversion"
SECRET = "/api/v1/namespaces/purelb-system/secrets/purelb-conversion"  # noqa: S105 - its path
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
V4 = {"pool": "172.28.1.100-172.28.1.104", "subnet": "172.28.1.0/24", "aggregation": "default"}
V6 = {
    "pool": "fd28:0:0:1::100-fd28:0:0:1::104",
    "subnet": "fd28:0:0:1::/64",
    "aggregation": "default",
}
FAR_V4 = {"pool": "10.100.9.0/28", "subnet": "10.100.9.0/24", "aggregation": "/32"}
FAR_V6 = {"pool": "fd28:100:9::/124", "subnet": "fd28:100:9::/64", "aggregation": "/128"}
# Seconds for which a terminating Pod stays among the endpoints, in a test.
UNHEARD = 2.0
CLIENTS = 8
WITH_V1 = ("-e", "purelb_install_v1_api=true")


@pytest.fixture(scope="module")
def install(cluster, playbook):
    """Runs the installation again, with the same image."""
    (container,) = cluster.api.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
    return partial(
        playbook, "purelb.purelb.install", "-e", f"purelb_install_image={container['image']}"
    )


@pytest.fixture(scope="module")
def both(cluster, install):
    """The cluster with v1 served; not served any more after the tests."""
    install(*WITH_V1)
    wait_for_conversion(cluster)
    yield cluster
    install()


def converts(lab):
    """Whether v1 can be written, as lists may come from the API server's cache."""
    meta = {"name": "tried", "namespace": "purelb-system"}
    body = {"apiVersion": "purelb.io/v1", "kind": "ServiceGroup", "metadata": meta}
    try:
        path = f"{GROUPS.format('v1')}?dryRun=All"
        lab.api.call("POST", path, {**body, "spec": {"local": {"v4pool": V4}}})
    except ApiError as error:
        # A write converts twice; the second request may go to a Pod that has ended.
        if "conversion webhook for purelb.io/v" not in str(error):
            raise
        return False
    return True


def wait_for_conversion(lab):
    """Wait until every conversion request goes to a Pod that answers it."""
    eventually(partial(is_settled, lab), "endpoints that are the allocators", seconds=60)
    eventually(partial(converts, lab), "a conversion that answers", seconds=60)


def is_settled(lab):
    """Whether all allocators are ready, none is terminating, and they are the only endpoints.

    The status of the Deployment says so too early: controllers that stood still update it late.
    """
    pods = allocator_pods(lab)
    slices = lab.api.items(SLICES, labelSelector="kubernetes.io/service-name=purelb-conversion")
    reached = {
        endpoint["targetRef"]["uid"] for s in slices for endpoint in s.get("endpoints") or ()
    }
    wanted = lab.api.get(DEPLOYMENT)["spec"]["replicas"]
    return len(pods) == wanted and all(map(is_ready, pods)) and reached == uids(pods)


@pytest.fixture
def make(both):
    """Creates objects of ours; deletes them after the test."""
    made = []

    def create(kind, name, spec, *, version):
        meta = {"name": name, "namespace": "purelb-system"}
        body = {"apiVersion": f"purelb.io/{version}", "kind": kind, "metadata": meta, "spec": spec}
        both.api.create(body)
        made.append(path_of(kind, name))
        return made[-1]

    yield create
    for path in made:
        eventually(partial(is_deleted, both, path.format("v2")), f"end of {path}", seconds=30)


def is_deleted(lab, path):
    """Delete an object; return False while the conversion, which this needs, is unavailable."""
    try:
        lab.api.delete(path)
    except ApiError as error:
        if "conversion webhook" in str(error):
            return False
        raise
    return True


def is_rolled_out(wanted, deployment):
    status, replicas = deployment["status"], wanted["spec"]["replicas"]
    return (
        status.get("observedGeneration", 0) >= wanted["metadata"]["generation"]
        and status.get("updatedReplicas") == replicas == status.get("readyReplicas")
        and status.get("replicas") == replicas
    )


def path_of(kind, name):
    return f"{GROUPS if kind == 'ServiceGroup' else AGENTS}/{name}"


def stored(lab, kind, name):
    """Return an object as stored in etcd."""
    plural = "servicegroups" if kind == "ServiceGroup" else "lbnodeagents"
    key = f"/registry/purelb.io/{plural}/purelb-system/{name}"
    asked = json.dumps({"key": base64.b64encode(key.encode()).decode()})
    done = lab.run_in("control", ["curl", "-sS", "--data", asked, f"{ETCD}/v3/kv/range"])
    (found,) = json.loads(done.stdout)["kvs"]
    return json.loads(base64.b64decode(found["value"]))


def warnings_of(lab, method, path, body=None):
    """Return the Warning headers of an answer."""
    pki = lab.at.run / "pki"
    tls = ssl.create_default_context(cafile=str(pki / "ca.crt"))
    tls.load_cert_chain(pki / "admin.crt", pki / "admin.key")
    (known,) = json.loads(lab.kubeconfig.read_text())["clusters"]
    server = known["cluster"]["server"].removeprefix("https://")
    connection = http.client.HTTPSConnection(server, timeout=10, context=tls)
    headers = {"Content-Type": "application/json"}
    connection.request(method, path, body and json.dumps(body), headers)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    assert answer.status < 300
    return answer.headers.get_all("Warning") or []


class TestServiceGroups:
    def test_v1_is_read_as_v2_with_every_field(self, both, make):
        path = make("ServiceGroup", "old", {"local": {"v4pool": V4, "v6pools": [V6]}}, version="v1")
        assert both.api.get(path.format("v2"))["spec"] == {
            "local": {
                "v4pool": V4,
                "v6pools": [V6],
                "skipIPv6DAD": False,
                "multiPool": False,
                "balancePools": False,
            },
            "enforceNamespaces": False,
            "namespaceDefault": False,
            "sharing": "namespace",
        }
        assert both.api.get(path.format("v1"))["spec"] == {"local": {"v4pool": V4, "v6pools": [V6]}}

    @pytest.mark.parametrize(("entry", "field"), [(V4, "v4pool"), (V6, "v6pool")], ids=["v4", "v6"])
    def test_oldest_fields_of_v1_are_converted_both_ways(self, both, make, entry, field):
        path = make("ServiceGroup", "flat", {"local": entry}, version="v1")
        assert both.api.get(path.format("v2"))["spec"]["local"][field] == entry
        assert both.api.get(path.format("v1"))["spec"] == {"local": entry}

    @pytest.mark.parametrize(
        ("field", "entry"), [("v4pool", FAR_V4), ("v6pool", FAR_V6)], ids=["v4", "v6"]
    )
    def test_v1_client_changes_only_the_v1_part_of_a_group(self, both, make, field, entry):
        spec = {"remote": {field: entry, "balancePools": True}, "namespaces": ["x"]}
        path = make("ServiceGroup", "new", spec, version="v2")
        before = both.api.get(path.format("v2"))["spec"]
        assert both.api.get(path.format("v1"))["spec"] == {"local": {field: entry}}
        patch = {"spec": {"local": {field: {"aggregation": "default"}}}}
        both.api.merge_patch(path.format("v1"), patch)
        before["remote"][field]["aggregation"] = "default"
        assert both.api.get(path.format("v2"))["spec"] == before

    def test_v1_client_can_label_an_external_group(self, both, make):
        spec = {"external": {"provider": "p", "announce": "local"}}
        path = make("ServiceGroup", "outside", spec, version="v2")
        both.api.merge_patch(path.format("v1"), {"metadata": {"labels": {"l": "1"}}})
        after = both.api.get(path.format("v2"))
        assert after["metadata"]["labels"] == {"l": "1"}
        assert after["spec"]["external"]["provider"] == "p"
        assert "purelb.io/v2-spec" not in after["metadata"].get("annotations", {})

    def test_v1_client_can_apply_to_an_external_group(self, both, make):
        path = make("ServiceGroup", "applied", {"remote": {"v4pool": FAR_V4}}, version="v2")
        meta = {"name": "applied", "namespace": "purelb-system"}
        body = {"apiVersion": "purelb.io/v1", "kind": "ServiceGroup", "metadata": meta}
        both.api.apply({**body, "spec": {"local": {"v6pool": FAR_V6}}})
        spec = both.api.get(path.format("v2"))["spec"]
        assert (spec["remote"]["v4pool"], spec["remote"]["v6pool"]) == (FAR_V4, FAR_V6)


class TestLBNodeAgents:
    def test_v1_is_read_as_v2_with_every_field(self, both, make):
        plain = {"localint": "^eth0$", "extlbint": "kube-lb0", "sendgarp": True}
        lifetimes = {"localInterface": {"validLifetime": 600, "noPrefixRoute": True}}
        spec = {"local": {**plain, "addressConfig": lifetimes}}
        path = make("LBNodeAgent", "zz-old", spec, version="v1")
        assert both.api.get(path.format("v2"))["spec"]["local"] == {
            "localInterface": "^eth0$",
            "dummyInterface": "kube-lb0",
            "garpConfig": {"enabled": True, "count": 3, "verifyBeforeSend": True},
            "addressConfig": lifetimes,
        }
        assert both.api.get(path.format("v1"))["spec"] == spec

    def test_fields_unknown_to_v1_survive_a_v1_client(self, both, make):
        no_node = {"matchLabels": {"no": "node"}}
        local = {"garpConfig": {"count": 7, "interval": "1s"}}
        path = make(
            "LBNodeAgent", "zz-new", {"nodeSelector": no_node, "local": local}, version="v2"
        )
        before = both.api.get(path.format("v2"))["spec"]
        assert both.api.get(path.format("v1"))["spec"]["local"]["sendgarp"] is True
        both.api.merge_patch(path.format("v1"), {"spec": {"local": {"sendgarp": False}}})
        before["local"]["garpConfig"]["enabled"] = False
        assert both.api.get(path.format("v2"))["spec"] == before


@pytest.mark.parametrize("kind", ["ServiceGroup", "LBNodeAgent"])
def test_only_v2_is_stored(both, make, kind):
    spec = {"local": {"v4pool": V4}} if kind == "ServiceGroup" else {"local": {"localint": "eth"}}
    make(kind, "zz-stored", spec, version="v1")
    assert stored(both, kind, "zz-stored")["apiVersion"] == "purelb.io/v2"
    plural = "servicegroups" if kind == "ServiceGroup" else "lbnodeagents"
    status = both.api.get(f"{CRDS}/{plural}.purelb.io")["status"]
    assert status["storedVersions"] == ["v2"]


@pytest.mark.parametrize(("path", "kind"), [(GROUPS, "ServiceGroup"), (AGENTS, "LBNodeAgent")])
def test_only_v1_clients_get_a_deprecation_warning(both, path, kind):
    (warning,) = warnings_of(both, "GET", path.format("v1"))
    assert f"purelb.io/v1 {kind} is deprecated: write purelb.io/v2" in warning
    assert warnings_of(both, "GET", path.format("v2")) == []


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({}, "give local or netbox"),
        ({"local": {}}, "give at least one range"),
        ({"local": {"v4pool": {**V4, "subnet": "10.0.0.0/8"}}}, "pool is outside its subnet"),
        ({"local": {"v6pool": {**V6, "subnet": "fd99::/64"}}}, "pool is outside its subnet"),
        ({"local": {**V4, "subnet": "10.0.0.0/8"}}, "all of them in its subnet"),
        ({"local": {**V6, "subnet": "fd99::/64"}}, "all of them in its subnet"),
        ({"local": {"pool": "x", "subnet": "y"}}, "subnet must be a CIDR"),
        ({"local": {"pool": V4["pool"]}}, "pool and subnet belong together"),
        (
            {"local": {"v4pool": V4}, "netbox": {"url": "https://n", "tenant": "t"}},
            "local and netbox are mutually exclusive",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_invalid_v1_object_is_refused_by_the_api_server(make, spec, words):
    with pytest.raises(ApiError, match=words) as refusal:
        make("ServiceGroup", "refused", spec, version="v1")
    assert refusal.value.status == 422


def test_forged_annotation_is_refused_by_name(both):
    meta = {
        "name": "forged",
        "namespace": "purelb-system",
        "annotations": {"purelb.io/v2-spec": '{"namespaces":5}'},
    }
    body = {"apiVersion": "purelb.io/v1", "kind": "ServiceGroup", "metadata": meta}
    with pytest.raises(ApiError) as refusal:
        both.api.create({**body, "spec": {"local": {"v4pool": V4}}})
    assert "ServiceGroup purelb-system/forged" in str(refusal.value)
    assert "purelb.io/v2-spec].namespaces: must be a list" in str(refusal.value)


def kubectl(lab, *arguments):
    program = [str(programs(lab.at).kubernetes), "kubectl", "--kubeconfig", str(lab.kubeconfig)]
    command = [*program, *map(str, arguments)]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def test_kubectl_shows_v1(both, make):
    make("ServiceGroup", "shown", {"remote": {"v4pool": FAR_V4}}, version="v2")
    done = kubectl(both, "-n", "purelb-system", "get", "servicegroups.v1.purelb.io", "shown")
    assert done.stdout.splitlines()[0].split()[:3] == ["NAME", "ANNOUNCE", "IPAM"]
    assert done.stdout.splitlines()[1].startswith("shown ")
    assert "Warning: purelb.io/v1 ServiceGroup is deprecated" in done.stderr


def test_group_written_in_v1_allocates_addresses(both, make, make_service):
    make("ServiceGroup", "v1-served", {"local": {"v4pool": V4, "v6pool": V6}}, version="v1")
    path = make_service(annotations={"purelb.io/service-group": "v1-served"})
    first, second = sorted(addresses_of(both, path), key=len)
    assert first.startswith("172.28.1.10")
    assert second.startswith("fd28:0:0:1::10")


@pytest.mark.thorough
@pytest.mark.parametrize("which", [0, 1])
def test_terminating_pod_converts_until_the_endpoints_are_updated(both, which, figure):
    pod = allocator_pods(both)[which]
    written, controllers = [], "kube-controller-manager"

    def write(_client):
        end = time.monotonic() + UNHEARD
        while time.monotonic() < end:
            written.append(converts(both))

    # As on a busy control plane: the Pod stays among the endpoints for a while.
    both.kill("control", controllers, "STOP")
    try:
        # Several at once, as the API server would use one connection, to one Pod.
        with ThreadPoolExecutor(CLIENTS) as pool:
            both.api.delete(f"{PODS}/{pod['metadata']['name']}")
            list(pool.map(write, range(CLIENTS)))
    finally:
        both.kill("control", controllers, "CONT")
    eventually(lambda: pod["metadata"]["uid"] not in uids(allocator_pods(both)), "end", seconds=30)
    # The next test may choose the new Pod, and its writes must not go to this one.
    wait_for_conversion(both)
    figure(f"{written.count(False)} of {len(written)} writes as v1 refused")
    assert all(written)


def uids(pods):
    return {pod["metadata"]["uid"] for pod in pods}


@pytest.mark.thorough
class TestWithoutTheConversion:
    @pytest.fixture
    def switch(self, both):
        """Switches the allocators' conversion on or off; the API server's configuration stays."""

        def turn(word):
            containers = both.api.get(DEPLOYMENT)["spec"]["template"]["spec"]["containers"]
            for setting in containers[0]["env"]:
                if setting["name"] == "PURELB_CONVERSION":
                    setting["value"] = word
            patch = {"spec": {"template": {"spec": {"containers": containers}}}}
            after = both.api.merge_patch(DEPLOYMENT, patch)
            both.api.wait(DEPLOYMENT, partial(is_rolled_out, after), what="rollout", seconds=60)
            # A Pod of before may still convert, or refuse to, until it has ended.
            eventually(partial(is_settled, both), "end of the former Pods", seconds=60)
            eventually(lambda: converts(both) == (word == "on"), "the change", seconds=30)

        yield turn
        turn("on")

    def test_v2_can_be_used_and_addresses_are_allocated(self, both, make, make_service, switch):
        switch("off")
        spec = {"local": {"v4pool": V4, "v6pool": V6}}
        path = make("ServiceGroup", "alone", spec, version="v2").format("v2")
        service = make_service(annotations={"purelb.io/service-group": "alone"})
        assert len(addresses_of(both, service)) == 2
        both.api.merge_patch(path, {"spec": {"local": {"multiPool": True}}})
        assert both.api.get(path)["spec"]["local"]["multiPool"] is True

    def test_v2_client_can_update_v1_objects_except_by_apply(self, both, make, switch):
        path = make("ServiceGroup", "mixed", {"local": {"v4pool": V4}}, version="v1").format("v2")
        meta = {"name": "mixed", "namespace": "purelb-system"}
        body = {"apiVersion": "purelb.io/v2", "kind": "ServiceGroup", "metadata": meta}
        switch("off")
        with pytest.raises(ApiError, match="conversion webhook"):
            both.api.apply({**body, "spec": {"local": {"multiPool": True}}})
        both.api.merge_patch(path, {"spec": {"local": {"multiPool": True}}})
        assert both.api.get(path)["spec"]["local"]["multiPool"] is True


@pytest.mark.thorough
class TestTheRole:
    def test_a_second_run_changes_nothing(self, both, install):
        before = both.api.get(SECRET)
        done = install(*WITH_V1)
        assert "changed=0" in done.stdout, done.stdout
        assert both.api.get(SECRET) == before

    def test_a_folder_of_manifests_is_accepted(self, both, playbook, tmp_path):
        folder = ("-e", f"purelb_install_manifests_dir={tmp_path}")
        for way in (WITH_V1, ()):
            playbook("purelb.purelb.install", *folder, *way)
            assert "changed=0" in playbook("purelb.purelb.install", *folder, *way).stdout
            names = {path.name for path in tmp_path.iterdir()}
            assert ("conversion-secret.yaml" in names) == ("conversion.yaml" in names) == bool(way)
            # With the installer's field manager, which owns the fields to remove.
            apply = ("apply", "--server-side", "--field-manager=purelb.purelb", "--force-conflicts")
            kubectl(both, *apply, "--dry-run=server", "-k", tmp_path)

    def test_conversion_is_not_removed_while_v1_objects_exist(self, both, install):
        crd = f"{CRDS}/servicegroups.purelb.io"
        both.api.merge_patch(f"{crd}/status", {"status": {"storedVersions": ["v1", "v2"]}})
        done = install(check=False)
        both.api.merge_patch(f"{crd}/status", {"status": {"storedVersions": ["v2"]}})
        assert done.returncode != 0
        assert "stored as purelb.io/v1" in done.stdout
        assert both.api.get(crd)["spec"]["conversion"]["strategy"] == "Webhook"

    def test_objects_stored_as_v1_are_rewritten(self, both, install, make):
        crd = f"{CRDS}/servicegroups.purelb.io"
        versions = both.api.get(crd)["spec"]["versions"]
        before = [{**version, "storage": version["name"] == "v1"} for version in versions]
        both.api.merge_patch(crd, {"spec": {"versions": before}})
        path = make(
            "ServiceGroup", "of-before", {"local": {"v4pool": V4, "v6pool": V6}}, version="v2"
        )
        times = count()

        def is_of_v1():
            label = {"written": str(next(times))}
            both.api.merge_patch(path.format("v2"), {"metadata": {"labels": label}})
            return stored(both, "ServiceGroup", "of-before")["apiVersion"] == "purelb.io/v1"

        eventually(is_of_v1, "storage as v1", seconds=30)
        install(*WITH_V1)
        assert stored(both, "ServiceGroup", "of-before")["apiVersion"] == "purelb.io/v2"
        assert both.api.get(crd)["status"]["storedVersions"] == ["v2"]
        assert "changed=0" in install(*WITH_V1).stdout

    @pytest.mark.timeout(180)
    def test_v1_can_be_switched_off_and_on(self, both, install, make):
        path = make("ServiceGroup", "stays", {"local": V4}, version="v1")
        install()
        assert both.api.get(path.format("v2"))["spec"]["local"]["v4pool"] == V4
        with pytest.raises(ApiError, match="404"):
            both.api.get(path.format("v1"))
        assert not both.api.exists(SERVICE)
        assert not both.api.exists(SECRET)
        crd = both.api.get(f"{CRDS}/servicegroups.purelb.io")
        assert crd["spec"]["conversion"] == {"strategy": "None"}
        assert "changed=0" in install().stdout
        tried = install(*WITH_V1, "--check", "--diff", "-vvv")
        assert not both.api.exists(SECRET)
        done = install(*WITH_V1, "--diff", "-vvv")
        key = both.api.get(SECRET)["data"]["tls.key"]
        assert key not in tried.stdout + done.stdout
        wait_for_conversion(both)
        assert both.api.get(path.format("v1"))["spec"] == {"local": V4}

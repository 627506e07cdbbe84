# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The API server's own validation of ServiceGroups and LBNodeAgents; PureLB does not run here.

The rules are read from the definitions: a unit test finds rules without a case.
"""

from __future__ import annotations

import subprocess
import sys
from copy import deepcopy

import pytest

from labkit.api import ApiError
from tests.support.crds.cases import V4, V6, cases
from tests.support.crds.rules import definitions, schemas
from tests.support.lab.accounts import ROOT, definitions_installed, objects_applied
from tests.support.lab.cluster_queries import eventually

pytestmark = pytest.mark.timeout(60)
NAMESPACE = "crds-test"
APPLY = "application/apply-patch+yaml"
VERSIONS = [(kind, version) for kind, version, _schema in schemas()]
PLURALS = {"ServiceGroup": "servicegroups", "LBNodeAgent": "lbnodeagents"}


@pytest.fixture(scope="module")
def api(lab):
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    with definitions_installed(lab), objects_applied(lab, [space]):
        yield lab.api


def path(kind, version="v2"):
    return f"/apis/purelb.io/{version}/namespaces/{NAMESPACE}/{PLURALS[kind]}"


def thing(kind, body, version="v2", name="case"):
    head = {"apiVersion": f"purelb.io/{version}", "kind": kind}
    return {**head, "metadata": {"name": name, "namespace": NAMESPACE}, **body}


@pytest.fixture
def make(api):
    """Creates objects; deletes them after the test."""
    made = []

    def create(kind, body, version="v2", name="case"):
        created = api.create(thing(kind, body, version, name))
        made.append(api.path_of(created))
        return created

    yield create
    for path in made:
        api.delete(path)


@pytest.fixture(scope="module")
def existing(api):
    """An object of each kind, for tests of its status."""
    bodies = {"ServiceGroup": {"spec": {"local": {"v4pool": V4}}}, "LBNodeAgent": {"spec": {}}}
    made = {kind: api.create(thing(kind, body, name="there")) for kind, body in bodies.items()}
    return {kind: api.path_of(one) for kind, one in made.items()}


def send(api, existing, case):
    """Send the case as a dry run."""
    if "status" in case.body:
        status = f"{existing[case.kind]}/status?dryRun=All"
        return api.merge_patch(status, {"status": case.body["status"]})
    body = thing(case.kind, case.body, case.version)
    return api.call("POST", f"{path(case.kind, case.version)}?dryRun=All", body)


@pytest.mark.parametrize("case", [c for c in cases() if c.words], ids=lambda case: case.name)
def test_is_refused_with_the_field_and_the_reason(api, existing, case):
    with pytest.raises(ApiError) as refusal:
        send(api, existing, case)
    assert refusal.value.status == 422
    found = [message for field, message in refusal.value.causes if field == case.field]
    assert any(case.words in message for message in found), refusal.value.causes


@pytest.mark.parametrize("case", [c for c in cases() if not c.words], ids=lambda case: case.name)
def test_is_accepted(api, existing, case):
    send(api, existing, case)


DEFAULTS = {
    "v4": (
        "ServiceGroup",
        {"local": {"v4pool": V4}},
        {
            "local": {
                "v4pool": {**V4, "aggregation": "default"},
                "skipIPv6DAD": False,
                "multiPool": False,
                "balancePools": False,
            },
            "enforceNamespaces": False,
            "namespaceDefault": False,
            "sharing": "namespace",
        },
    ),
    "v6 in lists": (
        "ServiceGroup",
        {"remote": {"v6pools": [V6]}},
        {
            "remote": {
                "v6pools": [{**V6, "aggregation": "default"}],
                "skipIPv6DAD": False,
                "multiPool": False,
                "balancePools": False,
            },
            "enforceNamespaces": False,
            "namespaceDefault": False,
            "sharing": "namespace",
        },
    ),
    "netbox": (
        "ServiceGroup",
        {"netbox": {"url": "https://n.example", "tenant": "a"}},
        {
            "netbox": {
                "url": "https://n.example",
                "tenant": "a",
                "aggregation": "default",
                "allowHTTP": False,
            },
            "enforceNamespaces": False,
            "namespaceDefault": False,
            "sharing": "namespace",
        },
    ),
    "external": (
        "ServiceGroup",
        {"external": {"provider": "a", "announce": "remote"}},
        {
            "external": {
                "provider": "a",
                "announce": "remote",
                "socket": "/var/run/purelb/ipam.sock",
            },
            "enforceNamespaces": False,
            "namespaceDefault": False,
            "sharing": "namespace",
        },
    ),
    # Agents skip one without.
    "agent without local": ("LBNodeAgent", {}, {}),
    "agent": (
        "LBNodeAgent",
        {"local": {}},
        {"local": {"localInterface": "default", "dummyInterface": "kube-lb0"}},
    ),
    # Times have no defaults: they would conflict with values in the other spelling.
    "agent with parts": (
        "LBNodeAgent",
        {
            "local": {
                "garpConfig": {},
                "addressConfig": {"localInterface": {}, "dummyInterface": {}},
            }
        },
        {
            "local": {
                "localInterface": "default",
                "dummyInterface": "kube-lb0",
                "garpConfig": {"enabled": True, "count": 3, "verifyBeforeSend": True},
                "addressConfig": {
                    "localInterface": {"validLifetime": 300, "noPrefixRoute": True},
                    "dummyInterface": {"validLifetime": 0, "noPrefixRoute": False},
                },
            }
        },
    ),
}


@pytest.mark.parametrize(("kind", "spec", "filled"), DEFAULTS.values(), ids=DEFAULTS)
def test_api_server_sets_the_defaults(make, kind, spec, filled):
    assert make(kind, {"spec": spec})["spec"] == filled


CLEAR = {"url": "http://n.example", "tenant": "a"}


@pytest.fixture(scope="module")
def from_before(api):
    """A group with a URL of http://, made when there was no rule about it; returns its path."""
    (definition,) = (d for d in definitions() if d["spec"]["names"]["kind"] == "ServiceGroup")
    without = deepcopy(definition)
    for version in without["spec"]["versions"]:
        spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
        spec["properties"]["netbox"].pop("x-kubernetes-validations", None)
    body = thing("ServiceGroup", {"spec": {"netbox": CLEAR}}, name="before")
    other = thing("ServiceGroup", {"spec": {"netbox": CLEAR}})

    def is_refused():
        try:
            api.call("POST", f"{path('ServiceGroup')}?dryRun=All", other)
        except ApiError:
            return True
        return False

    api.apply(without)
    eventually(lambda: not is_refused(), "a definition without the rule", seconds=30)
    made = api.create(body)
    api.apply(definition)
    eventually(is_refused, "the definition with the rule", seconds=30)
    yield api.path_of(made)
    api.delete(api.path_of(made))


class TestGroupFromBeforeTheRuleAboutHTTP:
    """It stays writable, but sends no token; the allocator says so."""

    @pytest.mark.parametrize(
        "change",
        [
            {"metadata": {"labels": {"a": "b"}}},
            {"spec": {"namespaces": ["a"]}},
            {"spec": {"netbox": {"tenant": "b"}}},
            {"spec": {"netbox": {"url": "https://n.example"}}},
            {"spec": {"netbox": {"allowHTTP": True}}},
        ],
        ids=["label", "namespaces", "tenant", "https", "allowed"],
    )
    def test_may_be_changed(self, api, from_before, change):
        api.merge_patch(f"{from_before}?dryRun=All", change)

    def test_may_have_a_status(self, api, from_before):
        api.merge_patch(f"{from_before}/status?dryRun=All", {"status": {"allocatedIPv4": 1}})

    def test_gets_no_other_url_of_this_kind(self, api, from_before):
        with pytest.raises(ApiError, match="allowHTTP"):
            api.merge_patch(from_before, {"spec": {"netbox": {"url": "http://other.example"}}})


def test_permission_for_http_cannot_be_taken_back_without_another_url(api, make):
    made = make("ServiceGroup", {"spec": {"netbox": {**CLEAR, "allowHTTP": True}}})
    with pytest.raises(ApiError, match="allowHTTP"):
        api.merge_patch(api.path_of(made), {"spec": {"netbox": {"allowHTTP": False}}})


@pytest.mark.parametrize("kind", PLURALS)
def test_unknown_field_is_refused_in_strict_mode(api, existing, kind):
    spec = api.get(existing[kind])["spec"]
    body = thing(kind, {"spec": {**spec, "adresses": []}})
    with pytest.raises(ApiError, match=r'unknown field "spec\.adresses"'):
        api.call("POST", f"{path(kind)}?dryRun=All&fieldValidation=Strict", body)


def apply(api, body, manager, *, force=False):
    where = f"{api.path_of(body)}?fieldManager={manager}&force={str(force).lower()}"
    return api.call("PATCH", where, body, kind=APPLY)


class TestServerSideApply:
    """Several field managers apply the same object."""

    @pytest.mark.parametrize(
        ("entry", "one", "other"),
        [
            ("v4pool", V4, {**V4, "pool": "10.0.0.16/28"}),
            ("v6pool", V6, {**V6, "pool": "fd00:1::10/124"}),
        ],
        ids=["v4", "v6"],
    )
    def test_second_manager_gets_a_conflict_that_names_the_first(self, api, entry, one, other):
        mine = thing("ServiceGroup", {"spec": {"local": {entry: one}}}, name=f"applied-{entry}")
        theirs = {**mine, "spec": {"local": {entry: other}}}
        apply(api, mine, "alice")
        assert apply(api, mine, "alice")["metadata"]["generation"] == 1
        apply(api, theirs, "alice")
        apply(api, mine, "alice")
        with pytest.raises(ApiError) as conflict:
            apply(api, theirs, "bob")
        assert conflict.value.status == 409
        field = f".spec.local.{entry}.pool"
        assert (field, 'conflict with "alice"') in conflict.value.causes
        after = apply(api, theirs, "bob", force=True)
        assert after["spec"]["local"][entry]["pool"] == other["pool"]
        api.delete(api.path_of(mine))

    def test_fields_of_several_managers_are_merged(self, api):
        local = {"localInterface": "none", "interfaces": ["eth1"]}
        mine = thing("LBNodeAgent", {"spec": {"local": local}}, name="shared")
        apply(api, mine, "alice")
        theirs = {**mine, "spec": {"local": {"interfaces": ["eth2"]}}}
        after = apply(api, theirs, "bob")
        assert sorted(after["spec"]["local"]["interfaces"]) == ["eth1", "eth2"]
        after = apply(api, {**mine, "spec": {"local": {"localInterface": "none"}}}, "alice")
        assert after["spec"]["local"]["interfaces"] == ["eth2"]
        api.delete(api.path_of(mine))


STATUS = {
    "ServiceGroup": ({"announce": "Local", "allocatedIPv4": 1, "allocatedIPv6": 2}, "addresses"),
    "LBNodeAgent": ({"activeLeases": 3}, "conditions"),
}


@pytest.mark.parametrize(("kind", "status"), [(k, s) for k, (s, _other) in STATUS.items()])
class TestStatus:
    """The status is a subresource."""

    def test_is_not_written_with_the_object(self, api, make, existing, kind, status):
        spec = api.get(existing[kind])["spec"]
        made = make(kind, {"spec": spec, "status": status})
        assert "status" not in made
        patched = api.merge_patch(api.path_of(made), {"status": status})
        assert "status" not in patched

    def test_takes_nothing_else_with_it(self, api, make, existing, kind, status):
        spec = api.get(existing[kind])["spec"]
        made = make(kind, {"spec": spec})
        patch = {"status": status, "spec": None, "metadata": {"labels": {"a": "b"}}}
        after = api.merge_patch(f"{api.path_of(made)}/status", patch)
        assert after["status"] == status
        assert after["spec"] == spec
        assert "labels" not in after["metadata"]
        assert after["metadata"]["generation"] == made["metadata"]["generation"]


def fields(schema, place=""):
    """Yield every field of a schema in the API server's OpenAPI document."""
    for name, part in schema.get("properties", {}).items():
        here = f"{place}.{name}"
        inner = part
        while inner.get("type") == "array":
            inner = inner["items"]
        yield here, part
        yield from fields(inner, here)


@pytest.mark.parametrize(("kind", "version"), VERSIONS, ids=[f"{k} {v}" for k, v in VERSIONS])
def test_kubectl_explains_every_field(api, kind, version):
    document = api.get(f"/openapi/v3/apis/purelb.io/{version}")
    (schema,) = (
        s for name, s in document["components"]["schemas"].items() if name.endswith(f".{kind}")
    )
    told = dict(fields(schema))
    assert ".spec" in told
    # A reference to another schema, such as metadata, has a description of its own.
    assert [place for place, part in told.items() if not part.get("description", "").strip()] == []


def kubectl(*arguments):
    command = [sys.executable, ROOT / "lab/lab", "kubectl", "--", *arguments]
    done = subprocess.run(command, text=True, capture_output=True, check=True, timeout=30)
    return done.stdout


def rows(text):
    """Parse kubectl's output into a dictionary per line."""
    head, *lines = text.splitlines()
    starts = [head.index(name) for name in head.split()]
    return [
        {
            name: line[start:end].strip()
            for name, start, end in zip(head.split(), starts, [*starts[1:], None], strict=True)
        }
        for line in lines
    ]


def test_kubectl_get_shows_the_free_addresses_of_a_group(api, make):
    made = make("ServiceGroup", {"spec": {"local": {"v4pool": V4, "v6pool": V6}}}, name="seen")
    status = {
        "announce": "Local",
        "ipam": "Cluster",
        "addresses": [V4["pool"], V6["pool"]],
        "allocatedIPv4": 3,
        "availableIPv4": 13,
        "allocatedIPv6": 4,
        "availableIPv6": 12,
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "Accepted",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    api.merge_patch(f"{api.path_of(made)}/status", {"status": status})
    (row,) = rows(kubectl("get", "sg", "-n", NAMESPACE, "seen"))
    del row["AGE"]
    assert row == {
        "NAME": "seen",
        "ANNOUNCE": "Local",
        "IPAM": "Cluster",
        "READY": "True",
        "ALLOCATED-V4": "3",
        "AVAILABLE-V4": "13",
        "ALLOCATED-V6": "4",
    }
    (row,) = rows(kubectl("get", "sg", "-n", NAMESPACE, "seen", "-o", "wide"))
    assert row["AVAILABLE-V6"] == "12"
    assert row["ADDRESSES"] == '["10.0.0.0/28","fd00:1::/124"]'


def test_kubectl_get_shows_the_interfaces_of_an_lbnodeagent(make):
    local = {"localInterface": "eth[0-9]", "interfaces": ["bond0"], "dummyInterface": "d0"}
    make("LBNodeAgent", {"spec": {"local": local}}, name="seen")
    (row,) = rows(kubectl("get", "lbna", "-n", NAMESPACE, "seen", "-o", "wide"))
    assert (row["LOCAL"], row["DUMMY"], row["INTERFACES"]) == ("eth[0-9]", "d0", '["bond0"]')


@pytest.mark.parametrize("field", ["sg.spec.local.v6pool.pool", "lbna.spec.local.dummyInterface"])
def test_kubectl_explain_prints_the_field(api, field):
    assert "DESCRIPTION:" in kubectl("explain", "--api-version=purelb.io/v2", field)

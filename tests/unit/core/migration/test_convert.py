# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
import re
from copy import deepcopy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core.errors import ObjectError
from purelb.core.migration.convert import bare, convert

V1_SPEC, V2_SPEC = "purelb.io/v1-spec", "purelb.io/v2-spec"
V4 = {"pool": "10.0.0.1-10.0.0.9", "subnet": "10.0.0.0/24", "aggregation": "default"}
V6 = {"pool": "fd00::1-fd00::9", "subnet": "fd00::/64", "aggregation": "/128"}
OTHER_V4 = {"pool": "10.0.1.0/29", "subnet": "10.0.1.0/24"}
NETBOX = {"url": "https://netbox.example.com", "tenant": "t", "aggregation": "/32"}
HTTP = {"url": "http://netbox.example.com", "tenant": "t"}
EXTERNAL = {"provider": "p", "socket": "/run/s", "announce": "remote"}
LIFETIMES = {"localInterface": {"validLifetime": 600}}


def made(kind, spec, version, annotations):
    meta = {"name": "a", "namespace": "ns", "labels": {"l": "1"}, "uid": "u"}
    if annotations:
        meta["annotations"] = annotations
    return {"apiVersion": f"purelb.io/{version}", "kind": kind, "metadata": meta, "spec": spec}


def group(spec, *, version, **annotations):
    return made("ServiceGroup", spec, version, annotations)


def agent(spec, *, version, **annotations):
    return made("LBNodeAgent", spec, version, annotations)


def annotations(body):
    return body["metadata"].get("annotations", {})


SAME = [
    ({"local": {"v4pool": V4}}, {"local": {"v4pool": V4}}),
    ({"local": {"v6pool": V6}}, {"local": {"v6pool": V6}}),
    ({"local": {"v4pools": [V4]}}, {"local": {"v4pools": [V4]}}),
    ({"local": {"v6pools": [V6], "v4pool": V4}}, {"local": {"v6pools": [V6], "v4pool": V4}}),
    ({"netbox": NETBOX}, {"netbox": NETBOX}),
    ({"netbox": HTTP}, {"netbox": {**HTTP, "allowHTTP": True}}),
]
RESPELLED = [
    ({"local": V4}, {"local": {"v4pool": V4}}),
    ({"local": V6}, {"local": {"v6pool": V6}}),
    ({"local": {**V4, "v6pool": V6}}, {"local": {"v4pool": V4, "v6pool": V6}}),
    (
        {"local": {"v4pool": V4, "v4pools": [OTHER_V4]}},
        {"local": {"v4pools": [V4, OTHER_V4]}},
    ),
    ({"local": {**V6, "v6pool": V6}}, {"local": {"v6pools": [V6, V6]}}),
    ({"local": {"v4pool": V4, "v6pools": []}}, {"local": {"v4pool": V4}}),
    ({"local": {"v4pool": V4}, "unknown": 1}, {"local": {"v4pool": V4}}),
]
AGENTS = [
    (
        {"local": {"localint": "default", "extlbint": "kube-lb0", "sendgarp": True}},
        {
            "local": {
                "localInterface": "default",
                "dummyInterface": "kube-lb0",
                "garpConfig": {"enabled": True},
            }
        },
    ),
    (
        {"local": {"localint": "eth[01]", "sendgarp": False, "addressConfig": LIFETIMES}},
        {
            "local": {
                "localInterface": "eth[01]",
                "addressConfig": LIFETIMES,
                "garpConfig": {"enabled": False},
            }
        },
    ),
    (
        {"local": {"interfaces": ["eth1"], "sendgarp": False}},
        {"local": {"interfaces": ["eth1"], "garpConfig": {"enabled": False}}},
    ),
]
ONLY_V2 = [
    ({"remote": {"v4pool": V4}}, {"local": {"v4pool": V4}}, {"remote": {}}),
    (
        {"remote": {"v6pools": [V6], "skipIPv6DAD": True}, "namespaces": ["x"]},
        {"local": {"v6pools": [V6]}},
        {"remote": {"skipIPv6DAD": True}, "namespaces": ["x"]},
    ),
    (
        {"local": {"v4pool": V4, "multiPool": True}, "enforceNamespaces": False},
        {"local": {"v4pool": V4}},
        {"local": {"multiPool": True}},
    ),
    ({"external": EXTERNAL}, {}, {"external": EXTERNAL}),
    (
        {"netbox": NETBOX, "namespaces": ["x"], "namespaceDefault": True},
        {"netbox": NETBOX},
        {"namespaces": ["x"], "namespaceDefault": True},
    ),
    (
        {"netbox": {**NETBOX, "allowHTTP": True}},
        {"netbox": NETBOX},
        {"netbox": {"allowHTTP": True}},
    ),
    # From before this field: v2 does not send its token, and a client of v1 does not change that.
    (
        {"netbox": {**HTTP, "allowHTTP": False}},
        {"netbox": HTTP},
        {"netbox": {"allowHTTP": False}},
    ),
]
SELECTOR = {
    "matchLabels": {"count": "3", "localInterface": "default"},
    "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
}


class TestV1ToV2:
    @pytest.mark.parametrize(("v1", "v2"), SAME, ids=str)
    def test_common_fields_need_no_annotation(self, v1, v2):
        new = convert(group(v1, version="v1"), to="v2")
        assert new == group(v2, version="v2")

    @pytest.mark.parametrize(("v1", "v2"), RESPELLED, ids=str)
    def test_another_spelling_is_kept_in_an_annotation(self, v1, v2):
        new = convert(group(v1, version="v1"), to="v2")
        assert new["spec"] == v2
        assert json.loads(annotations(new)[V1_SPEC]) == v1
        assert convert(new, to="v1") == group(v1, version="v1")

    @pytest.mark.parametrize(("v1", "v2"), AGENTS, ids=str)
    def test_the_fields_of_an_agent_have_new_names(self, v1, v2):
        new = convert(agent(v1, version="v1"), to="v2")
        assert new == agent(v2, version="v2")
        assert convert(new, to="v1") == agent(v1, version="v1")

    @pytest.mark.parametrize("spec", [{}, {"local": {}}, {"local": {"localint": "x"}}], ids=str)
    def test_an_agent_that_says_nothing_of_announcements_sends_none(self, spec):
        new = convert(agent(spec, version="v1"), to="v2")
        assert new["spec"]["local"]["garpConfig"] == {"enabled": False}
        assert convert(new, to="v1") == agent(spec, version="v1")

    def test_status_and_metadata_stay(self):
        old = {**group({"local": {"v4pool": V4}}, version="v1", other="o"), "status": {"ipam": "x"}}
        new = convert(old, to="v2")
        assert new == {**old, "apiVersion": "purelb.io/v2"}

    def test_what_is_given_is_left_alone(self):
        old = group({"local": V4}, version="v1")
        before = deepcopy(old)
        convert(old, to="v2")["spec"]["local"]["v4pool"]["pool"] = "changed"
        assert old == before

    def test_an_object_without_a_spec_gets_an_empty_one(self):
        assert convert(group(None, version="v1"), to="v2")["spec"] == {}


class TestV2ToV1:
    @pytest.mark.parametrize(("v2", "v1", "kept"), ONLY_V2, ids=str)
    def test_v2_only_fields_are_kept_in_an_annotation(self, v2, v1, kept):
        old = convert(group(v2, version="v2"), to="v1")
        assert old["spec"] == v1
        assert json.loads(annotations(old)[V2_SPEC]) == kept
        new = convert(old, to="v2")
        assert bare(new["spec"]) == bare(v2)
        assert V2_SPEC not in annotations(new)

    def test_an_agents_selector_and_sequence_are_kept(self):
        spec = {
            "nodeSelector": SELECTOR,
            "local": {"garpConfig": {"count": 5, "interval": "1s", "verifyBeforeSend": True}},
        }
        old = convert(agent(spec, version="v2"), to="v1")
        assert old["spec"] == {"local": {"sendgarp": True}}
        assert json.loads(annotations(old)[V2_SPEC]) == {
            "nodeSelector": SELECTOR,
            "local": {"garpConfig": {"count": 5, "interval": "1s"}},
        }
        back = convert(old, to="v2")["spec"]
        assert back["nodeSelector"] == SELECTOR
        assert bare(back["local"]) == bare(spec["local"])

    def test_defaults_need_no_annotation(self):
        spec = {
            "local": {"v4pool": V4, "skipIPv6DAD": False, "multiPool": False},
            "enforceNamespaces": False,
        }
        assert annotations(convert(group(spec, version="v2"), to="v1")) == {}
        sequence = {"enabled": True, "count": 3, "verifyBeforeSend": True}
        spec = {"nodeSelector": {}, "local": {"garpConfig": sequence}}
        assert annotations(convert(agent(spec, version="v2"), to="v1")) == {}

    @pytest.mark.parametrize(
        "text",
        ["{", "[]", "5", '{"local":5}', '{"local":{"v4pool":5}}', "[" * 100_000, '{"local":{}}'],
        ids=lambda text: text[:20],
    )
    def test_a_spelling_that_cannot_be_read_or_says_something_else_is_ignored(self, text):
        stored = group({"local": {"v4pool": V4}}, version="v2", **{V1_SPEC: text})
        assert convert(stored, to="v1") == group({"local": {"v4pool": V4}}, version="v1")


class TestChangesInBetween:
    def test_v1_changes_a_pool_and_the_rest_of_v2_stays(self):
        spec = {"remote": {"v4pool": V4, "balancePools": True}, "namespaces": ["x"]}
        old = convert(group(spec, version="v2"), to="v1")
        old["spec"]["local"] = {"v4pools": [V4, OTHER_V4]}
        assert convert(old, to="v2")["spec"] == {
            "remote": {"v4pools": [V4, OTHER_V4], "balancePools": True},
            "namespaces": ["x"],
        }

    def test_v1_switches_announcements_off_and_the_sequence_stays(self):
        old = convert(agent({"local": {"garpConfig": {"count": 7}}}, version="v2"), to="v1")
        old["spec"]["local"]["sendgarp"] = False
        new = convert(old, to="v2")
        assert new["spec"] == {"local": {"garpConfig": {"count": 7, "enabled": False}}}

    @pytest.mark.parametrize(
        ("before", "written", "after"),
        [
            ({"external": EXTERNAL}, {"local": {"v4pool": V4}}, {"local": {"v4pool": V4}}),
            ({"remote": {"v4pool": V4}}, {"netbox": NETBOX}, {"netbox": NETBOX}),
            (
                {"netbox": NETBOX, "namespaces": ["x"]},
                {"local": {"v6pool": V6}},
                {"local": {"v6pool": V6}, "namespaces": ["x"]},
            ),
            ({"remote": {"v4pool": V4}}, {}, {}),
        ],
        ids=["external to local", "remote to netbox", "netbox to local", "to nothing"],
    )
    def test_v1_gives_another_source(self, before, written, after):
        old = convert(group(before, version="v2"), to="v1")
        old["spec"] = written
        assert convert(old, to="v2")["spec"] == after

    def test_v2_changes_a_pool_and_v1_gets_the_plain_spelling(self):
        new = convert(group({"local": V4}, version="v1"), to="v2")
        new["spec"]["local"]["v4pool"] = OTHER_V4
        assert convert(new, to="v1") == group({"local": {"v4pool": OTHER_V4}}, version="v1")

    def test_v2_adds_what_v1_lacks_and_v1_keeps_its_spelling(self):
        new = convert(group({"local": V4}, version="v1"), to="v2")
        new["spec"]["local"]["multiPool"] = True
        old = convert(new, to="v1")
        assert old["spec"] == {"local": V4}
        assert json.loads(annotations(old)[V2_SPEC]) == {"local": {"multiPool": True}}

    def test_the_old_spelling_survives_what_the_api_server_fills_in(self):
        flat = {"pool": V4["pool"], "subnet": V4["subnet"]}
        new = convert(group({"local": flat}, version="v1"), to="v2")
        new["spec"]["local"].update(v4pool=V4, skipIPv6DAD=False)
        assert convert(new, to="v1") == group({"local": flat}, version="v1")

    def test_an_annotation_about_the_version_at_hand_is_dropped(self):
        spec = {"local": {"v4pool": V4}}
        sent = group(spec, version="v2", **{V2_SPEC: '{"remote":{}}'})
        assert convert(sent, to="v1") == group(spec, version="v1")
        sent = group(spec, version="v1", **{V1_SPEC: "x"})
        assert convert(sent, to="v2") == group(spec, version="v2")


class TestRefusals:
    @pytest.mark.parametrize("version", ["v1", "v2"])
    def test_the_same_version_is_the_same_object(self, version):
        body = group({"local": {"v4pool": V4}}, version=version, **{V1_SPEC: "x", V2_SPEC: "x"})
        assert convert(body, to=version) == body

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            ({"kind": "Pod"}, "kind: must be one of LBNodeAgent, ServiceGroup"),
            ({"kind": ["x"]}, "kind: must be one of"),
            ({"apiVersion": "purelb.io/v3"}, "apiVersion: must be purelb.io/v1 or purelb.io/v2"),
            ({"apiVersion": "v1"}, "apiVersion: must be"),
            ({"apiVersion": None}, "apiVersion: must be"),
            ({"spec": "x"}, "spec: must be an object"),
            ({"spec": {"local": 5}}, "spec.local: must be an object"),
            ({"spec": {"local": {"v4pools": {}}}}, "spec.local.v4pools: must be a list"),
            ({"spec": {"local": {"v6pool": "x"}}}, "spec.local.v6pool: must be an object"),
            ({"spec": {"netbox": "x"}}, "spec.netbox: must be an object"),
            ({"metadata": {"name": "a", "annotations": "x"}}, "annotations: must be an object"),
            ({"metadata": 5}, "ServiceGroup ?/?: metadata: must be an object"),
        ],
        ids=str,
    )
    def test_what_is_no_object_of_ours_is_refused_by_name_and_field(self, change, words):
        body = {**group({"local": {"v4pool": V4}}, version="v1"), **change}
        with pytest.raises(ObjectError, match=re.escape(words)):
            convert(body, to="v2")

    def test_an_unknown_version_to_convert_to_is_refused(self):
        with pytest.raises(ObjectError, match=r"ServiceGroup ns/a: apiVersion: .*'v9'"):
            convert(group({}, version="v1"), to="v9")

    def test_a_v2_agent_with_a_wrong_sequence_is_refused(self):
        with pytest.raises(ObjectError, match=r"spec.local.garpConfig: must be an object"):
            convert(agent({"local": {"garpConfig": 5}}, version="v2"), to="v1")

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ("{", "is not a JSON object: remove the annotation"),
            (5, "is not a JSON object"),
            ("[1]", "is not a JSON object"),
            ('{"local":{"v4pool":{}}}', ".local.v4pool: is not a field that only v2 has"),
            ('{"namespaces":"x"}', ".namespaces: must be a list"),
            ('{"namespaces":[5]}', ".namespaces[0]: must be a text"),
            ('{"remote":{"multiPool":1}}', ".remote.multiPool: must be a boolean"),
            ('{"remote":5}', ".remote: must be an object"),
        ],
    )
    def test_annotation_with_v2_fields_is_validated(self, text, words):
        body = group({"local": {"v4pool": V4}}, version="v1", **{V2_SPEC: text})
        with pytest.raises(ObjectError) as refusal:
            convert(body, to="v2")
        assert str(refusal.value).startswith(f"ServiceGroup ns/a: metadata.annotations[{V2_SPEC}]")
        assert words in str(refusal.value)

    @pytest.mark.parametrize(
        ("text", "words"),
        [
            ('{"nodeSelector":{"matchExpressions":[{"key":1}]}}', r"\[0\].key: must be a text"),
            ('{"local":{"garpConfig":{"count":true}}}', "count: must be a whole number"),
        ],
    )
    def test_annotation_of_an_agent_is_validated(self, text, words):
        with pytest.raises(ObjectError, match=words):
            convert(agent({}, version="v1", **{V2_SPEC: text}), to="v2")


def some(**fields):
    return st.fixed_dictionaries({}, optional=fields)


TEXT, FLAG = st.text(max_size=4), st.booleans()
ENTRY = st.sampled_from([V4, V6, OTHER_V4])
ENTRIES = st.lists(ENTRY, max_size=3)
POOLS = {"v4pool": ENTRY, "v4pools": ENTRIES, "v6pool": ENTRY, "v6pools": ENTRIES}
OTHER = st.dictionaries(TEXT, TEXT, max_size=2)
BOX = {
    "url": st.one_of(TEXT, st.just("http://n"), st.just("https://n")),
    "tenant": TEXT,
    "aggregation": TEXT,
}
BOXES = some(**BOX)
LIFE = some(localInterface=some(validLifetime=st.integers(0, 9)), dummyInterface=some())
AGENT = {"interfaces": st.lists(TEXT, max_size=2), "addressConfig": LIFE}
V1_SPECS = {
    "ServiceGroup": some(
        local=some(**POOLS, pool=TEXT, subnet=TEXT, aggregation=TEXT), netbox=BOXES
    ),
    "LBNodeAgent": some(local=some(**AGENT, localint=TEXT, extlbint=TEXT, sendgarp=FLAG)),
}
# What the API server lets through: one spelling for each family.
FAMILIES = [
    st.one_of(
        some(**{f"v{version}pool": ENTRY}),
        some(**{f"v{version}pools": st.lists(ENTRY, min_size=1, max_size=3)}),
    )
    for version in (4, 6)
]
RANGES = st.tuples(*FAMILIES, some(skipIPv6DAD=FLAG, multiPool=FLAG, balancePools=FLAG)).map(
    lambda parts: {field: value for part in parts for field, value in part.items()}
)
SCOPE = {
    "namespaces": st.lists(TEXT, max_size=2),
    "enforceNamespaces": FLAG,
    "namespaceDefault": FLAG,
    "sharing": st.sampled_from(["namespace", "cluster"]),
}
OUTSIDE = some(provider=TEXT, socket=TEXT, announce=TEXT)
SEQUENCE = some(
    enabled=FLAG,
    count=st.integers(1, 10),
    intervalMs=st.integers(100, 5000),
    interval=TEXT,
    delayMs=st.integers(0, 9),
    initialDelay=TEXT,
    verifyBeforeSend=FLAG,
)
V2_SPECS = {
    "ServiceGroup": st.one_of(
        some(local=RANGES, **SCOPE),
        some(remote=RANGES, **SCOPE),
        some(netbox=some(**BOX, allowHTTP=FLAG), **SCOPE),
        some(external=OUTSIDE, **SCOPE),
    ),
    "LBNodeAgent": some(
        nodeSelector=some(matchLabels=OTHER),
        local=some(**AGENT, localInterface=TEXT, dummyInterface=TEXT, garpConfig=SEQUENCE),
    ),
}
KINDS = pytest.mark.parametrize("kind", ["ServiceGroup", "LBNodeAgent"])


@KINDS
@given(data=st.data())
def test_v1_round_trip_is_identical(kind, data):
    old = made(kind, data.draw(V1_SPECS[kind]), "v1", data.draw(OTHER))
    assert convert(convert(old, to="v2"), to="v1") == old


@KINDS
@given(data=st.data())
def test_v2_round_trip_is_identical_except_defaults(kind, data):
    new = made(kind, data.draw(V2_SPECS[kind]), "v2", data.draw(OTHER))
    back = convert(convert(new, to="v1"), to="v2")
    assert {**back, "spec": bare(back["spec"])} == {**new, "spec": bare(new["spec"])}

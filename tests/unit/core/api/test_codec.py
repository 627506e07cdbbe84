# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from dataclasses import replace
from ipaddress import ip_address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from purelb.core import names
from purelb.core.allocation.outcomes import Assignment, Remainder
from purelb.core.api import codec
from purelb.core.model import Lease, Outage, PoolType, ServiceGroup, ServiceKey
from purelb.core.names import MAX_ANSWERING, MAX_DUPLICATES, MAX_MACS, MAX_MISTAKEN
from purelb.core.node.annotations import format_announcing, merge_announcing
from purelb.core.times import format_time, parse_time
from tests.support import ROOT

SUBNETS = names.SUBNETS_ANNOTATION
VECTORS = ROOT / "tests/unit/core/vectors"
LEASE = Lease(
    node="n1",
    subnets=(ip_network("172.28.1.0/24"), ip_network("fd28::/64")),
    instance="pod-uid",
    holder="n1",
    duration=10.0,
    renew_time=1_700_000_000.25,
    node_uid="node-uid",
)


def vector(name):
    return json.loads((VECTORS / name).read_text())


def test_a_lease_that_we_write_is_read_back_as_it_was():
    body = codec.lease_body(LEASE, namespace="purelb-system")
    assert codec.lease_of(body) == LEASE


def test_the_epoch_and_the_mail_of_a_lease_are_read_back():
    written = replace(LEASE, epoch="b7a1.2", mail='{"questions": []}')
    assert codec.lease_of(codec.lease_body(written, namespace="purelb-system")) == written


def test_lease_contains_the_outage():
    held = replace(LEASE, outage=Outage(1_700_000_000.5, 1_700_000_180.25))
    body = codec.lease_body(held, namespace="purelb-system")
    text = body["metadata"]["annotations"]["purelb.io/held-through-outage"]
    assert text == "2023-11-14T22:13:20.500000Z/2023-11-14T22:16:20.250000Z"
    assert codec.lease_of(body) == held


@pytest.mark.parametrize("text", ["", "yesterday", "2023-11-14T22:13:20Z", "/", "a/b"])
def test_an_outage_that_cannot_be_read_is_none(text):
    body = codec.lease_body(LEASE, namespace="purelb-system")
    body["metadata"]["annotations"]["purelb.io/held-through-outage"] = text
    assert codec.lease_of(body).outage is None


def test_a_lease_belongs_to_its_node():
    body = codec.lease_body(LEASE, namespace="purelb-system")
    (owner,) = body["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", "n1", "node-uid")


def test_a_lease_of_the_go_agent_is_understood():
    lease = codec.lease_of(vector("lease-go.json"))
    assert lease == Lease(
        node="worker-1",
        subnets=(ip_network("192.168.1.0/24"), ip_network("10.0.0.0/24")),
        holder="worker-1",
        duration=10.0,
        renew_time=1704456000.0,
        version="1234",
        uid="9c7a",
    )


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"metadata": {"name": "purelb-allocator"}}, None),
        ({"metadata": {"name": "purelb-node-a"}}, Lease("a", duration=0.0)),
        ({"metadata": {"name": "purelb-node-a"}, "spec": None}, Lease("a", duration=0.0)),
        (
            {"metadata": {"name": "purelb-node-a", "managedFields": [{"time": "x"}, {}]}},
            Lease("a", duration=0.0),
        ),
    ],
    ids=["other lease", "empty", "no spec", "no times"],
)
def test_odd_leases_do_not_crash(change, expected):
    assert codec.lease_of(change) == expected


def test_subnets_that_are_too_wide_are_not_read():
    """They would claim the addresses of nearly all networks."""
    meta = {
        "name": "purelb-node-a",
        "annotations": {SUBNETS: "0.0.0.0/0,10.0.0.0/8,::/0,fd00::/16"},
    }
    lease = codec.lease_of({"metadata": meta})
    assert lease.subnets == (ip_network("10.0.0.0/8"), ip_network("fd00::/16"))
    assert lease.malformed == ("0.0.0.0/0", "::/0")


def test_what_is_too_long_for_an_annotation_is_not_read():
    long = {names.MAIL_ANNOTATION: "x" * 70_000, names.EPOCH_ANNOTATION: "e.1"}
    lease = codec.lease_of({"metadata": {"name": "purelb-node-a", "annotations": long}})
    assert (lease.mail, lease.epoch) == ("", "e.1")
    many = ",".join(f"10.{n >> 8}.{n & 255}.0/24" for n in range(4000))
    lease = codec.lease_of({"metadata": {"name": "purelb-node-a", "annotations": {SUBNETS: many}}})
    assert len(lease.subnets) == names.MAX_SUBNETS


def test_a_lease_for_ever_lasts_a_minute():
    spec = {"leaseDurationSeconds": 2_147_483_647}
    assert codec.lease_of({"metadata": {"name": "purelb-node-a"}, "spec": spec}).duration == 60.0


def test_a_lease_was_written_when_its_last_manager_wrote():
    managed = [{"time": f"2026-01-01T00:00:{second:02}Z"} for second in (9, 10, 8)]
    lease = codec.lease_of({"metadata": {"name": "purelb-node-a", "managedFields": managed}})
    assert lease is not None
    assert lease.written == 1_767_225_610.0


@pytest.mark.parametrize("ids", [(), ("3fa9c1d2",), ("3fa9c1d2", "00ffee11")], ids=len)
def test_the_ids_of_an_agents_keys_are_in_its_lease(ids):
    body = codec.lease_body(replace(LEASE, peer_keys=ids), namespace="purelb-system")
    assert codec.lease_of(body).peer_keys == ids


def test_addresses_that_another_host_has_are_in_the_lease_of_the_node_that_found_them():
    found = (ip_address("172.28.1.5"), ip_address("fd28::5"))
    body = codec.lease_body(replace(LEASE, duplicates=found), namespace="x")
    assert codec.lease_of(body).duplicates == found


def test_a_list_of_duplicates_that_is_too_long_or_wrong_is_read_as_far_as_possible():
    body = codec.lease_body(LEASE, namespace="x")
    long = ",".join(["nonsense", *(f"172.28.1.{n}" for n in range(1, 101))])
    body["metadata"]["annotations"]["purelb.io/duplicates"] = long
    assert len(codec.lease_of(body).duplicates) == MAX_DUPLICATES - 1


def test_the_macs_of_a_node_and_who_answers_for_it_are_in_its_lease():
    macs = (bytes.fromhex("020000000001"), bytes.fromhex("020000000002"))
    said = replace(LEASE, macs=macs, answering=("n2", "n3"))
    body = codec.lease_body(said, namespace="x")
    annotations = body["metadata"]["annotations"]
    assert annotations["purelb.io/macs"] == "02:00:00:00:00:01,02:00:00:00:00:02"
    assert annotations["purelb.io/answering-nodes"] == "n2,n3"
    assert (codec.lease_of(body).macs, codec.lease_of(body).answering) == (macs, ("n2", "n3"))
    annotations["purelb.io/macs"] = "x,02:00,02:00:00:00:00:01"
    assert codec.lease_of(body).macs == macs[:1]


def test_a_lease_says_which_of_its_subnets_the_network_replaces():
    assert "purelb.io/deprecated-subnets" not in codec.lease_body(LEASE, namespace="x")["metadata"]
    replaced = LEASE.subnets[:1]
    body = codec.lease_body(replace(LEASE, deprecated=replaced), namespace="x")
    annotations = body["metadata"]["annotations"]
    assert annotations["purelb.io/deprecated-subnets"] == str(replaced[0])
    assert codec.lease_of(body).deprecated == replaced
    annotations["purelb.io/deprecated-subnets"] = "x,,"
    assert codec.lease_of(body).deprecated == ()


def test_the_lists_of_macs_and_nodes_have_limits():
    macs = tuple(bytes([2, 0, 0, 0, 0, n]) for n in range(MAX_MACS + 1))
    nodes = tuple(f"m{n}" for n in range(MAX_ANSWERING + 1))
    body = codec.lease_body(replace(LEASE, macs=macs, answering=nodes), namespace="x")
    assert codec.lease_of(body).macs == macs[:-1]
    assert codec.lease_of(body).answering == nodes[:-1]
    long = {"purelb.io/macs": macs, "purelb.io/answering-nodes": nodes}
    texts = {
        name: ",".join(m if isinstance(m, str) else m.hex(":") for m in long[name]) for name in long
    }
    body["metadata"]["annotations"].update(texts)
    assert codec.lease_of(body).macs == macs[:-1]
    assert codec.lease_of(body).answering == nodes[:-1]


def test_the_fence_is_in_the_lease():
    body = codec.lease_body(replace(LEASE, fence="eth0=behindOther"), namespace="x")
    assert body["metadata"]["annotations"]["purelb.io/fence"] == "eth0=behindOther"
    assert codec.lease_of(body).fence == "eth0=behindOther"
    assert codec.lease_of(codec.lease_body(LEASE, namespace="x")).fence == ""


def test_addresses_that_are_not_the_nodes_are_in_the_lease():
    said = (("n1", ip_address("172.28.1.5")), ("n2.example.com", ip_address("fd28::5")))
    body = codec.lease_body(replace(LEASE, mistaken=said), namespace="x")
    text = "n1/172.28.1.5,n2.example.com/fd28::5"
    assert body["metadata"]["annotations"]["purelb.io/mistaken-addresses"] == text
    assert codec.lease_of(body).mistaken == said


def test_a_list_of_mistaken_addresses_that_is_too_long_or_wrong_is_read_as_far_as_possible():
    body = codec.lease_body(LEASE, namespace="x")
    assert "purelb.io/mistaken-addresses" not in body["metadata"]["annotations"]
    entries = ["nonsense", "n1/", "n1/x", *(f"n1/172.28.1.{n}" for n in range(1, 101))]
    body["metadata"]["annotations"]["purelb.io/mistaken-addresses"] = ",".join(entries)
    assert len(codec.lease_of(body).mistaken) == MAX_MISTAKEN - 3
    many = tuple(("n1", ip_address(n)) for n in range(MAX_MISTAKEN + 1))
    written = codec.lease_body(replace(LEASE, mistaken=many), namespace="x")
    assert codec.lease_of(written).mistaken == many[:-1]


def test_what_an_agent_knew_in_a_pool_is_in_its_lease():
    text = "172.28.1.5,local,default/web"
    body = codec.lease_body(replace(LEASE, outside=text), namespace="x")
    assert body["metadata"]["annotations"]["purelb.io/outside-pools"] == text
    assert codec.lease_of(body).outside == text


def test_the_same_subnets_in_two_leases_are_one_record():
    bodies = (codec.lease_body(replace(LEASE, node=n), namespace="x") for n in ("n1", "n2"))
    one, other = map(codec.lease_of, bodies)
    assert one.subnets is other.subnets


def test_subnets_that_are_none_are_reported_and_the_others_used():
    body = codec.lease_body(LEASE, namespace="x")
    body["metadata"]["annotations"]["purelb.io/subnets"] = "172.28.1.0/24, nonsense,,"
    lease = codec.lease_of(body)
    assert (lease.subnets, lease.malformed) == ((ip_network("172.28.1.0/24"),), ("nonsense",))


def test_a_service_is_read():
    service = codec.service_of(vector("service.json"))
    assert service.key == ServiceKey("default", "web")
    assert service.families == (4, 6)
    assert service.addresses == (ip_address("172.28.1.220"), ip_address("fd28::220"))
    assert (service.allocated_by_us, service.pool_type) == (True, PoolType.LOCAL)
    assert [str(e) for e in service.announcing[4]] == ["n1,eth0,172.28.1.220"]
    assert service.announcing[6][0].address is None
    assert service.is_announced(ip_address("172.28.1.220"))
    assert not service.is_announced(ip_address("172.28.1.221"))
    # An entry without an address stands for its family.
    assert service.is_announced(ip_address("fd28::221"))


def test_an_announcement_that_cannot_be_read_is_kept_without_its_address():
    (entry,) = codec.parse_announcements("n1,eth0,nonsense")
    assert (entry.node, entry.interface, entry.address) == ("n1", "eth0", None)


@pytest.mark.parametrize(
    "entry",
    [
        "n2,eth0,172.28.1.220",
        "n2,eth0,fd28::220",
        "n2,eth0,FD28:0::220",
        "n2,eth0",
        "n2",
        "n2,eth0,x",
    ],
)
def test_an_entry_of_another_node_is_handed_back_as_it_stands(entry):
    read = codec.parse_announcements(f"n1,eth0,192.0.2.1\t{entry}")
    merged = merge_announcing(read, (), node="n1", live_nodes=frozenset({"n1", "n2"}), alone=True)
    assert format_announcing(merged) == entry


def test_an_assignment_becomes_the_allocators_annotations():
    assignment = Assignment("blue", (), PoolType.REMOTE, skip_dad=True)
    assert codec.assignment_annotations(assignment) == {
        "purelb.io/allocated-by": "PureLB",
        "purelb.io/allocated-from": "blue",
        "purelb.io/pool-type": "remote",
        "purelb.io/skip-ipv6-dad": "true",
        "purelb.io/re-evaluate": None,
    }


def test_the_addresses_of_a_node_are_read_without_its_name():
    addresses = [
        {"type": "InternalIP", "address": "172.28.1.11"},
        {"type": "InternalIP", "address": "fd28::11"},
        {"type": "Hostname", "address": "n1"},
    ]
    expected = {ip_address("172.28.1.11"), ip_address("fd28::11")}
    assert codec.node_addresses({"status": {"addresses": addresses}}) == expected
    assert codec.node_addresses({}) == frozenset()


def test_hostnames_and_garbage_in_a_status_are_not_ours():
    body = vector("service.json")
    body["status"]["loadBalancer"]["ingress"] = [{"hostname": "lb.example.com"}, {"ip": "x"}, {}]
    assert codec.service_of(body).addresses == ()


@given(st.integers(0, 4_000_000_000_000_000).map(lambda micros: micros / 1_000_000))
def test_times_are_read_back_to_the_microsecond(seconds):
    assert parse_time(format_time(seconds)) == pytest.approx(seconds, abs=2e-6)


def test_a_released_service_loses_all_of_our_marks():
    assert set(codec.assignment_annotations(None).values()) == {None}


def test_a_refused_service_has_the_annotations_of_what_it_keeps():
    address, group = ip_address("10.0.0.1"), ServiceGroup("blue", pool_type=PoolType.REMOTE)
    assert codec.remainder_annotations(Remainder((address,), group)) == {
        "purelb.io/allocated-by": "PureLB",
        "purelb.io/allocated-from": "blue",
        "purelb.io/pool-type": "remote",
        "purelb.io/skip-ipv6-dad": None,
    }
    assert codec.remainder_annotations(Remainder((address,), None)) == {}
    nothing = codec.remainder_annotations(Remainder((), None))
    assert nothing == codec.assignment_annotations(None)
    assert codec.ingress_status(()) == {"loadBalancer": {"ingress": None}}


def test_an_expired_time_that_cannot_be_read_is_none():
    assert parse_time("yesterday") is None
    assert replace(LEASE, renew_time=parse_time(None)).renew_time is None


@pytest.mark.parametrize(
    ("version", "than", "older"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("10", "10", False),
        ("", "10", False),
        ("x", "y", False),
    ],
)
def test_versions_are_compared_as_numbers(version, than, older):
    assert codec.is_older(version, than) is older


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"ready": True}, {"n1"}),
        ({}, {"n1"}),
        ({"ready": None}, {"n1"}),
        ({"ready": False, "serving": True, "terminating": True}, set()),
    ],
    ids=["ready", "unknown", "null", "terminating"],
)
def test_a_node_counts_while_an_endpoint_on_it_is_ready(conditions, expected):
    body = {
        "metadata": {
            "namespace": "default",
            "name": "web-x7",
            "labels": {"kubernetes.io/service-name": "web"},
        },
        "endpoints": [
            {"addresses": ["10.244.1.7"], "nodeName": "n1", "conditions": conditions},
            {"addresses": ["192.0.2.9"], "conditions": {"ready": True}},
        ],
    }
    found = codec.endpoint_slice_of(body)
    assert (found.service, found.nodes) == (ServiceKey("default", "web"), expected)


def test_endpoint_slice_of_no_service_is_skipped():
    assert codec.endpoint_slice_of({"metadata": {"namespace": "default", "name": "x"}}) is None


def test_traffic_policy_is_read():
    body = {
        "metadata": {
            "namespace": "default",
            "name": "web",
            "annotations": {"purelb.io/node-affinity": "service-endpoints"},
        },
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"},
    }
    service = codec.service_of(body)
    assert (service.is_external_local, service.has_affinity) == (True, True)


def lb_service(annotations, **spec):
    meta = {"namespace": "default", "name": "web", "annotations": annotations}
    return codec.service_of({"metadata": meta, "spec": {"type": "LoadBalancer", **spec}})


@pytest.mark.parametrize(
    ("annotations", "spec", "explicit"),
    [
        ({"purelb.io/addresses": "10.0.0.1,fd00::1"}, {}, ("10.0.0.1", "fd00::1")),
        ({"purelb.io/addresses": " FD00::0:1 10.0.0.1,"}, {}, ("fd00::1", "10.0.0.1")),
        ({"purelb.io/addresses": "10.0.0.1"}, {"loadBalancerIP": "10.0.0.2"}, ("10.0.0.1",)),
        ({}, {"loadBalancerIP": "10.0.0.2"}, ("10.0.0.2",)),
        ({}, {"loadBalancerIP": "fd00::2"}, ("fd00::2",)),
        ({}, {}, ()),
    ],
    ids=["comma", "spaces", "annotation-first", "spec-v4", "spec-v6", "none"],
)
def test_requested_addresses_are_read(annotations, spec, explicit):
    assert tuple(map(str, lb_service(annotations, **spec).explicit)) == explicit


def test_invalid_addresses_are_kept_apart():
    service = lb_service({"purelb.io/addresses": "10.0.0.1,web.example"})
    assert (tuple(map(str, service.explicit)), service.malformed) == (
        ("10.0.0.1",),
        ("web.example",),
    )


def test_the_ports_of_a_service_are_tcp_unless_it_says_otherwise():
    ports = [{"port": 80}, {"port": 53, "protocol": "UDP"}]
    assert lb_service({}, ports=ports).ports == {("TCP", 80), ("UDP", 53)}


@pytest.mark.parametrize(
    ("text", "multi", "again"),
    [
        (None, None, False),
        ("true", True, True),
        ("No", False, False),
        ("now please", None, True),
    ],
    ids=["absent", "yes", "no", "other"],
)
def test_switches_of_a_service_are_read_as_people_write_them(text, multi, again):
    keys = ("purelb.io/multi-pool", "purelb.io/re-evaluate", "purelb.io/allow-local")
    service = lb_service({} if text is None else dict.fromkeys(keys, text))
    assert (service.multi_pool, service.asks_reevaluation, service.allows_local) == (
        multi,
        again,
        again,
    )

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a Service object says of others that write it, and what is left to them."""

from __future__ import annotations

from ipaddress import ip_address

from purelb.core.api import codec

INGRESS = {"f:loadBalancer": {"f:ingress": {}}}


def written(*entries, **status):
    notes = [{"manager": name, "fieldsV1": fields} for name, fields in entries]
    meta = {"namespace": "default", "name": "web", "managedFields": notes}
    return codec.service_of({"metadata": meta, "spec": {}, "status": status})


def test_writers_are_those_that_the_api_server_notes_for_the_field():
    service = written(
        ("kubectl", {"f:spec": {"f:externalTrafficPolicy": {}, "f:type": {}}}),
        ("k3s", {"f:status": INGRESS}),
        ("other", {"f:status": {"f:loadBalancer": {}}, "f:spec": {"f:type": {}}}),
        ("cilium", {"f:status": {"f:conditions": {}}}),
    )
    assert service.address_writers == {"k3s"}
    assert service.policy_writers == {"kubectl"}


def test_without_notes_no_writer_is_known():
    service = codec.service_of({"metadata": {"namespace": "default", "name": "web"}})
    assert service.address_writers == service.policy_writers == frozenset()
    assert written(("k3s", None)).address_writers == frozenset()


def test_entries_that_are_no_address_of_the_nodes_are_counted():
    entries = [
        {"ip": "10.0.0.1", "ipMode": "VIP"},
        {"hostname": "lb.example.com"},
        # kube-proxy takes no traffic for it.
        {"ip": "fd00::1", "ipMode": "Proxy"},
    ]
    service = written(loadBalancer={"ingress": entries})
    assert list(map(str, service.addresses)) == ["10.0.0.1", "fd00::1"]
    assert service.other_ingress == 2


def test_a_deletion_that_waits_for_finalizers_is_seen():
    meta = {"namespace": "default", "name": "web"}
    assert not codec.service_of({"metadata": meta}).is_terminating
    deleted = {**meta, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert codec.service_of({"metadata": deleted}).is_terminating


def test_what_others_wrote_is_left_as_it_is():
    theirs = [{"ip": "192.0.2.1", "ipMode": "VIP", "ports": []}, {"hostname": "lb.example.com"}]
    ours = [ip_address("10.0.0.1"), ip_address("fd00::1")]
    entries = [{"ip": "10.0.0.1"}, *theirs, {"ip": "FD00:0::1"}]
    body = {"status": {"loadBalancer": {"ingress": entries}}}
    assert codec.ingress_without(body, ours) == {"loadBalancer": {"ingress": theirs}}
    only = {"status": {"loadBalancer": {"ingress": entries[:1]}}}
    assert codec.ingress_without(only, ours) == {"loadBalancer": {"ingress": None}}
    assert codec.ingress_without({}, ours) == {"loadBalancer": {"ingress": None}}

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The requests of each write, and what interrupts them."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.allocation.outcomes import Assignment, Remainder
from purelb.core.model import PoolType, Service, ServiceGroup, ServiceKey
from purelb_agent.allocator.service_writer import ServiceWriter
from purelb_agent.kube.client import ApiError
from tests.support.agent.cancellation import cancel_at_each_await
from tests.support.agent.fake_api import FakeApi

PATH = "/api/v1/namespaces/default/services/web"
SERVICE = Service(ServiceKey("default", "web"), version="7")
V4, V6 = ip_address("10.0.0.1"), ip_address("fd00::1")


def assignment(**more):
    return Assignment("default", (V4, V6), PoolType.LOCAL, skip_dad=False, **more)


@pytest.fixture
def api():
    api = FakeApi()
    api.answer("PATCH", PATH, {"metadata": {"resourceVersion": "8"}})
    api.answer("PATCH", f"{PATH}/status", {"metadata": {"resourceVersion": "9"}})
    return api


@pytest.fixture
def writer(api):
    return ServiceWriter(api)


async def test_assign_writes_annotations_and_addresses_at_once(api, writer):
    assert await writer.assign(SERVICE, assignment()) == "9"
    (request,) = api.requests
    assert request.path == f"{PATH}/status"
    assert request.body["metadata"]["resourceVersion"] == "7"
    assert request.body["metadata"]["annotations"]["purelb.io/allocated-from"] == "default"
    ingress = request.body["status"]["loadBalancer"]["ingress"]
    assert [entry["ip"] for entry in ingress] == [str(V4), str(V6)]


async def test_assign_changes_the_policy_first_and_continues_from_that_version(api, writer):
    assert await writer.assign(SERVICE, assignment(sets_cluster=True)) == "9"
    policy, status = api.requests
    assert policy.path == PATH
    assert policy.body == {
        "spec": {"externalTrafficPolicy": "Cluster"},
        "metadata": {"resourceVersion": "7"},
    }
    assert status.body["metadata"]["resourceVersion"] == "8"


async def test_release_removes_addresses_and_annotations(api, writer):
    shown = replace(SERVICE, addresses=(V4, V6))
    assert await writer.release(shown, (V4, V6)) == "9"
    (request,) = api.requests
    assert set(request.body["metadata"]["annotations"].values()) == {None}
    assert not request.body["status"]["loadBalancer"].get("ingress")
    assert request.params == {"fieldManager": "purelb-allocator"}


async def test_release_leaves_the_entries_of_others(api, writer):
    theirs = [{"ip": "192.0.2.1", "ipMode": "VIP"}, {"hostname": "lb.example.com"}]
    found = {"status": {"loadBalancer": {"ingress": [{"ip": str(V4)}, *theirs, {"ip": str(V6)}]}}}
    api.answer("GET", PATH, found)
    shown = replace(SERVICE, addresses=(V4, V6), other_ingress=1)
    assert await writer.release(shown, (V4, V6)) == "9"
    assert api.requests[-1].body["status"] == {"loadBalancer": {"ingress": theirs}}


async def test_release_of_one_that_shows_only_others_writes_no_status(api, writer):
    assert await writer.release(replace(SERVICE, other_ingress=1), ()) == "9"
    (request,) = api.requests
    assert "status" not in request.body


@pytest.mark.parametrize("group", [None, ServiceGroup("blue", skip_dad=True)])
async def test_reduce_leaves_the_annotations_or_writes_those_of_the_group(api, writer, group):
    assert await writer.reduce(SERVICE, Remainder((V6,), group)) == "9"
    (request,) = api.requests
    marks = {
        "purelb.io/allocated-by": "PureLB",
        "purelb.io/allocated-from": "blue",
        "purelb.io/pool-type": "local",
        "purelb.io/skip-ipv6-dad": "true",
    }
    assert request.body["metadata"]["annotations"] == (marks if group else {})
    ingress = request.body["status"]["loadBalancer"]["ingress"]
    assert [entry["ip"] for entry in ingress] == [str(V6)]


async def test_reduce_to_nothing_removes_the_annotations(api, writer):
    await writer.reduce(SERVICE, Remainder((), None))
    (request,) = api.requests
    assert set(request.body["metadata"]["annotations"].values()) == {None}
    assert request.body["status"] == {"loadBalancer": {"ingress": None}}


@pytest.mark.parametrize("status", [0, 403, 404, 409, 500])
async def test_an_error_of_the_first_request_prevents_the_second(api, writer, status):
    api.answer("PATCH", PATH, ApiError(status, "no"))
    with pytest.raises(ApiError, match="no"):
        await writer.assign(SERVICE, assignment(sets_cluster=True))
    assert len(api.requests) == 1


async def test_cancellation_at_each_await_leaves_no_request_under_way(api, writer):
    runs = 0
    async for interruption in cancel_at_each_await(
        lambda: writer.assign(SERVICE, assignment(sets_cluster=True))
    ):
        assert api.under_way == 0, interruption
        runs += 1
    assert runs > 2

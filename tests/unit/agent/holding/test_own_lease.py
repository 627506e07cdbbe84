# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Requests that write, read and delete the own Lease, against a fake API."""

from __future__ import annotations

import asyncio

import pytest

from purelb.core.api import codec
from purelb.core.model import Lease
from purelb_agent.holding.own_lease import Identity, OwnLease
from purelb_agent.kube.client import ApiError
from tests.support.agent.cancellation import cancel_at_each_await
from tests.support.agent.fake_api import FakeApi
from tests.support.agent.kubernetes_objects import NAMESPACE, lease_object
from tests.support.core.snapshots import NET4, NET6

COLLECTION = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
PATH = f"{COLLECTION}/purelb-node-n1"
NODE = "/api/v1/nodes/n1"
LEASE = Lease("n1", (NET4, NET6), instance="pod-n1", holder="n1", renew_time=1.0)
MISSING, CONFLICT = ApiError(404, "not found"), ApiError(409, "modified")


def node(uid="uid-n1"):
    return {"metadata": {"name": "n1", "uid": uid}}


def stored(request):
    """The object as the API server returns it after a write."""
    version = int(request.body["metadata"].get("resourceVersion", "0")) + 1
    meta = {"uid": "uid-lease", **request.body["metadata"], "resourceVersion": str(version)}
    return {**request.body, "metadata": meta}


@pytest.fixture
def api():
    made = FakeApi()
    made.answer("GET", NODE, node())
    made.answer("GET", PATH, MISSING)
    made.answer("POST", COLLECTION, stored)
    made.answer("PUT", PATH, stored)
    made.answer("DELETE", PATH, {})
    return made


@pytest.fixture
def own(api):
    return OwnLease(api, Identity("n1", "pod-n1", NAMESPACE))


def requests(api):
    return [(request.method, request.path) for request in api.requests]


def shown(version, instance="pod-n1"):
    """The own Lease as the watch shows it."""
    return codec.lease_of(lease_object("n1", version=version, instance=instance))


def versions_written(api):
    return [r.body["metadata"]["resourceVersion"] for r in api.sent("PUT")]


async def write_without_answer(own, api, end):
    """Write the Lease by a request that is given up, or whose connection breaks."""
    if end == "broken":
        api.answer("PUT", PATH, ApiError(0, "no answer"), times=1)
        with pytest.raises(ApiError):
            await own.write(LEASE, seconds=2.0)
        return
    api.hang("PUT", PATH)
    write = asyncio.create_task(own.write(LEASE, seconds=2.0))
    await asyncio.sleep(0)
    write.cancel()
    with pytest.raises(asyncio.CancelledError):
        await write
    api.resume("PUT", PATH)


class TestWrite:
    async def test_the_first_write_creates_a_lease_owned_by_the_node(self, own, api):
        await own.write(LEASE, seconds=2.0)
        assert requests(api) == [("GET", NODE), ("GET", PATH), ("POST", COLLECTION)]
        body = api.requests[-1].body
        assert body["metadata"]["ownerReferences"][0]["uid"] == "uid-n1"
        assert body["spec"]["holderIdentity"] == "n1"

    async def test_a_lease_that_exists_is_replaced_in_the_version_that_was_read(self, own, api):
        api.answer("GET", PATH, lease_object("n1", version="41"))
        await own.write(LEASE, seconds=2.0)
        (request,) = api.sent("PUT")
        meta = request.body["metadata"]
        assert (meta["resourceVersion"], meta["uid"]) == ("41", "uid-lease-n1")

    async def test_a_renewal_is_one_request(self, own, api):
        await own.write(LEASE, seconds=2.0)
        api.requests.clear()
        await own.write(LEASE, seconds=2.0)
        assert requests(api) == [("PUT", PATH)]

    async def test_each_request_gets_the_timeout(self, own, api):
        await own.write(LEASE, seconds=2.0)
        assert {request.seconds for request in api.requests} == {2.0}

    @pytest.mark.parametrize("error", [MISSING, CONFLICT], ids=["deleted", "changed"])
    async def test_a_lease_changed_by_others_is_read_and_written_again(
        self, own, api, error, caplog
    ):
        await own.write(LEASE, seconds=2.0)
        api.answer("PUT", PATH, error, times=1)
        api.answer("GET", PATH, lease_object("n1", version="41", instance="other"), times=1)
        api.requests.clear()
        await own.write(LEASE, seconds=2.0)
        assert requests(api) == [("PUT", PATH), ("GET", PATH), ("GET", NODE), ("PUT", PATH)]
        assert api.sent("PUT")[-1].body["metadata"]["resourceVersion"] == "41"
        assert caplog.messages == ["leaseChangedByOthers"]

    async def test_an_own_write_without_an_answer_is_no_change_by_others(self, own, api, caplog):
        await own.write(LEASE, seconds=2.0)
        api.answer("PUT", PATH, CONFLICT, times=1)
        api.answer("GET", PATH, lease_object("n1", version="41", instance="pod-n1"), times=1)
        await own.write(LEASE, seconds=2.0)
        assert api.sent("PUT")[-1].body["metadata"]["resourceVersion"] == "41"
        assert caplog.messages == []

    @pytest.mark.parametrize("end", ["given up", "broken"])
    async def test_after_a_write_without_an_answer_the_version_is_the_shown_one(
        self, own, api, end
    ):
        """It was written: to learn that by a refusal would take as long as a write."""
        await own.write(LEASE, seconds=2.0)
        await write_without_answer(own, api, end)
        api.requests.clear()
        await own.write(LEASE, shown=shown("2"), seconds=2.0)
        await own.write(LEASE, shown=shown("2"), seconds=2.0)
        assert requests(api) == [("PUT", PATH), ("PUT", PATH)]
        assert versions_written(api) == ["2", "3"]

    @pytest.mark.parametrize(
        "seen",
        [lambda: None, lambda: shown("0"), lambda: shown("2", instance="pod-other")],
        ids=["nothing", "an older one", "another pod's"],
    )
    async def test_only_a_later_one_of_this_pod_is_taken_from_the_watch(self, own, api, seen):
        await own.write(LEASE, seconds=2.0)
        await write_without_answer(own, api, "broken")
        api.requests.clear()
        await own.write(LEASE, shown=seen(), seconds=2.0)
        assert versions_written(api) == ["1"]

    @pytest.mark.parametrize("status", [None, 500], ids=["answered", "refused"])
    async def test_after_an_answer_the_shown_version_is_a_change_by_others(self, own, api, status):
        await own.write(LEASE, seconds=2.0)
        if status is not None:
            api.answer("PUT", PATH, ApiError(status, "no leader"), times=1)
            with pytest.raises(ApiError):
                await own.write(LEASE, seconds=2.0)
        api.requests.clear()
        await own.write(LEASE, shown=shown("2"), seconds=2.0)
        assert versions_written(api) == ["1"]

    async def test_of_two_writes_at_once_one_takes_effect(self, own, api):
        await own.write(LEASE, seconds=2.0)
        api.hang("PUT", PATH)
        writes = [asyncio.create_task(own.write(LEASE, seconds=2.0)) for _ in range(2)]
        await asyncio.sleep(0)
        api.answer("PUT", PATH, CONFLICT, times=1)
        api.answer("GET", PATH, lease_object("n1", version="2", instance="pod-n1"))
        api.resume("PUT", PATH)
        await asyncio.gather(*writes)
        assert versions_written(api) == ["1", "1", "2"]

    async def test_a_node_that_was_created_again_owns_a_new_lease(self, own, api):
        await own.write(LEASE, seconds=2.0)
        api.answer("PUT", PATH, MISSING, times=1)
        api.answer("GET", NODE, node("uid-new"))
        await own.write(LEASE, seconds=2.0)
        assert api.requests[-1].method == "POST"
        assert api.requests[-1].body["metadata"]["ownerReferences"][0]["uid"] == "uid-new"

    @pytest.mark.parametrize("status", [0, 403, 500])
    async def test_another_error_is_raised_and_the_next_write_is_one_request(
        self, own, api, status
    ):
        await own.write(LEASE, seconds=2.0)
        api.answer("PUT", PATH, ApiError(status, "no"), times=1)
        with pytest.raises(ApiError):
            await own.write(LEASE, seconds=2.0)
        api.requests.clear()
        await own.write(LEASE, seconds=2.0)
        assert requests(api) == [("PUT", PATH)]

    async def test_a_lease_that_others_create_first_is_an_error(self, own, api):
        api.answer("POST", COLLECTION, CONFLICT, times=1)
        with pytest.raises(ApiError):
            await own.write(LEASE, seconds=2.0)

    @pytest.mark.parametrize("path", [NODE, PATH])
    async def test_an_error_while_reading_is_raised(self, own, api, path):
        api.answer("GET", path, ApiError(403, "no"))
        with pytest.raises(ApiError, match="no"):
            await own.write(LEASE, seconds=2.0)
        assert not api.sent("POST")

    async def test_a_request_that_hangs_is_an_error(self, own, api):
        api.hang("POST", COLLECTION)
        with pytest.raises(ApiError, match="no answer within 2 s"):
            await own.write(LEASE, seconds=2.0)

    async def test_after_a_cancelled_write_the_next_one_succeeds(self, own, api):
        async for interruption in cancel_at_each_await(lambda: own.write(LEASE, seconds=2.0)):
            assert api.under_way == 0, interruption
        api.requests.clear()
        await own.write(LEASE, seconds=2.0)
        assert [request.outcome for request in api.requests] == ["answered"]
        assert api.requests[-1].body["metadata"]["name"] == "purelb-node-n1"


class TestRead:
    async def test_a_missing_lease_is_none(self, own):
        assert await own.read(1.0) is None

    async def test_what_is_there_is_returned(self, own, api):
        there = lease_object("n1")
        api.answer("GET", PATH, there)
        assert await own.read(1.0) == there


class TestDelete:
    async def test_it_is_released_in_the_version_that_was_read_then_deleted(self, own, api, caplog):
        caplog.set_level("INFO", "purelb")
        api.answer("GET", PATH, lease_object("n1", version="41", epoch="t.1"))
        await own.delete()
        assert requests(api) == [("GET", PATH), ("PUT", PATH), ("DELETE", PATH)]
        (released,) = api.sent("PUT")
        assert released.body["metadata"]["resourceVersion"] == "41"
        assert codec.lease_of(released.body).is_released
        (request,) = api.sent("DELETE")
        expected = {"uid": "uid-lease-n1", "resourceVersion": "42"}
        assert request.body["preconditions"] == expected
        assert caplog.messages == ["leaseDeleted"]

    async def test_one_that_cannot_be_released_is_not_deleted(self, own, api, caplog):
        api.answer("GET", PATH, lease_object("n1"))
        api.answer("PUT", PATH, ApiError(500, "no"))
        await own.delete()
        assert not api.sent("DELETE")
        assert caplog.messages == ["leaseNotDeleted"]

    async def test_a_missing_lease_is_not_deleted(self, own, api):
        await own.delete()
        assert not api.sent("DELETE")

    async def test_the_lease_of_another_pod_is_not_deleted(self, own, api):
        other = lease_object("n1")
        other["metadata"]["annotations"]["purelb.io/instance"] = "pod-new"
        api.answer("GET", PATH, other)
        await own.delete()
        assert requests(api) == [("GET", PATH)]

    async def test_a_lease_renewed_meanwhile_is_read_again(self, own, api):
        api.answer("GET", PATH, lease_object("n1"))
        api.answer("DELETE", PATH, CONFLICT, times=1)
        await own.delete()
        assert [request.outcome for request in api.sent("DELETE")] == ["refused", "answered"]

    async def test_a_lease_renewed_before_it_is_released_is_read_again(self, own, api):
        api.answer("GET", PATH, lease_object("n1"))
        api.answer("PUT", PATH, CONFLICT, times=1)
        await own.delete()
        assert [request.outcome for request in api.sent("PUT")] == ["refused", "answered"]
        assert len(api.sent("DELETE")) == 1

    async def test_it_gives_up_after_three_conflicts(self, own, api):
        api.answer("GET", PATH, lease_object("n1"))
        api.answer("DELETE", PATH, CONFLICT)
        await own.delete()
        assert len(api.sent("DELETE")) == 3

    @pytest.mark.parametrize("status", [0, 403, 500])
    async def test_another_error_is_logged(self, own, api, status, caplog):
        api.answer("GET", PATH, ApiError(status, "no"))
        await own.delete()
        assert caplog.messages == ["leaseNotDeleted"]

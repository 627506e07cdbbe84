# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The client of sidecars: its calls, and what each gRPC status means; the stub is a fake."""

from __future__ import annotations

from ipaddress import ip_address

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from purelb.core.allocation.ipam import IpamRequest, Leased
from purelb.core.model import ExternalSource, NetBoxSource, ServiceGroup, ServiceKey
from purelb_agent.ipam import external
from purelb_agent.ipam.external import External
from purelb_agent.ipam.metrics import SidecarMetrics
from purelb_agent.ipam.port import CALL_SECONDS, IpamError
from purelb_agent.proto import ipam_pb2 as messages
from purelb_agent.runtime.metrics import MetricFactory
from tests.support import fail

KEY = ServiceKey("default", "web")
GROUP = ServiceGroup("pool", source=ExternalSource("acme", "/socket"))
V4, V6 = ip_address("10.0.0.1"), ip_address("fd00::1")


class Channel:
    def __init__(self):
        self.is_closed = False

    async def close(self):
        self.is_closed = True


class Stub:
    """Answers each method with what the test wrote down; remembers the messages."""

    def __init__(self):
        self.calls, self.answer = [], None

    def __getattr__(self, method):
        async def call(message, **options):
            self.calls.append((method, message, options["timeout"]))
            if isinstance(self.answer, BaseException):
                fail(self.answer)
            return self.answer

        return call


@pytest.fixture
def stub(monkeypatch):
    stub = Stub()
    stub.channels = {}

    def channel(target, *, options):
        stub.channels[target] = Channel()
        return stub.channels[target]

    monkeypatch.setattr(external.grpc.aio, "insecure_channel", channel)
    monkeypatch.setattr(external, "IPAMStub", lambda _channel: stub)
    return stub


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def client(stub, registry):
    return External(SidecarMetrics(MetricFactory(registry)))


def refused(code, details="no"):
    nothing = grpc.aio.Metadata()
    return grpc.aio.AioRpcError(code, nothing, nothing, details=details)


def calls(registry, method, code):
    metric = "purelb_allocator_sidecar_rpc_total"
    return registry.get_sample_value(
        metric, {"method": f"/purelb.ipam.v1.IPAM/{method}", "code": code}
    )


async def test_families_are_requested_and_addresses_returned(client, stub, registry):
    stub.answer = messages.AllocateResponse(ips=[messages.AllocatedIP(ip=str(V6))])
    request = IpamRequest(KEY, sharing_key="k", families=(6,))
    assert await client.allocate(GROUP, request) == (Leased(V6),)
    ((method, message, timeout),) = stub.calls
    assert (method, timeout) == ("Allocate", CALL_SECONDS)
    assert (message.pool, message.service, message.sharing_key) == ("pool", "default/web", "k")
    assert (message.families.want_ipv4, message.families.want_ipv6) == (False, True)
    assert calls(registry, "Allocate", "OK") == 1


async def test_explicit_addresses_are_requested_instead_of_families(client, stub):
    stub.answer = messages.AllocateResponse(ips=[messages.AllocatedIP(ip=str(V4))])
    await client.allocate(GROUP, IpamRequest(KEY, explicit=(V4,)))
    ((_method, message, _timeout),) = stub.calls
    assert list(message.explicit.ips) == [str(V4)]
    assert not message.HasField("families")


@pytest.mark.parametrize("address", [None, V4, V6], ids=["all", "v4", "v6"])
async def test_a_release_names_the_address_or_all(client, stub, address):
    stub.answer = messages.ReleaseResponse()
    await client.release(GROUP, KEY, address)
    ((method, message, _timeout),) = stub.calls
    assert method == "Release"
    assert (message.all, message.ip) == ((True, "") if address is None else (False, str(address)))


@pytest.mark.parametrize("is_known", [True, False])
async def test_stats_have_a_size_only_if_the_capacity_is_known(client, stub, is_known):
    stub.answer = messages.StatsResponse(
        in_use_v4=1, in_use_v6=2, size_v4=3, size_v6=4, has_known_capacity=is_known
    )
    stats = await client.stats(GROUP)
    assert stats.in_use == {4: 1, 6: 2}
    assert stats.size == ({4: 3, 6: 4} if is_known else {4: None, 6: None})


async def test_a_sidecar_cannot_list_its_holders(client, stub):
    assert await client.holders(GROUP) == frozenset()
    assert stub.calls == []


async def test_an_answer_without_addresses_is_exhausted(client, stub):
    stub.answer = messages.AllocateResponse()
    with pytest.raises(IpamError, match="gave no address") as raised:
        await client.allocate(GROUP, IpamRequest(KEY, families=(4,)))
    assert raised.value.is_exhausted


async def test_an_answer_that_is_no_address_is_a_permanent_error(client, stub):
    stub.answer = messages.AllocateResponse(ips=[messages.AllocatedIP(ip="nonsense")])
    with pytest.raises(IpamError, match="'nonsense', which is no address") as raised:
        await client.allocate(GROUP, IpamRequest(KEY, families=(4,)))
    assert raised.value.is_permanent


async def test_an_answer_that_cannot_be_decoded_is_a_permanent_error(client, stub, registry):
    stub.answer = None
    with pytest.raises(IpamError, match=r"proto/ipam\.proto") as raised:
        await client.stats(GROUP)
    assert raised.value.is_permanent
    assert calls(registry, "Stats", "Internal") == 1


@pytest.mark.parametrize(
    ("code", "spelled", "meaning"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Unavailable", (False, False)),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "DeadlineExceeded", (False, False)),
        (grpc.StatusCode.ABORTED, "Aborted", (False, False)),
        (grpc.StatusCode.CANCELLED, "Canceled", (False, False)),
        (grpc.StatusCode.INTERNAL, "Internal", (False, False)),
        (grpc.StatusCode.UNKNOWN, "Unknown", (False, False)),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "ResourceExhausted", (True, False)),
        (grpc.StatusCode.INVALID_ARGUMENT, "InvalidArgument", (False, True)),
        (grpc.StatusCode.NOT_FOUND, "NotFound", (False, True)),
        (grpc.StatusCode.UNIMPLEMENTED, "Unimplemented", (False, True)),
    ],
)
async def test_each_status_is_counted_and_has_its_meaning(
    client, stub, registry, code, spelled, meaning
):
    stub.answer = refused(code)
    with pytest.raises(IpamError, match=spelled) as raised:
        await client.stats(GROUP)
    error = raised.value
    assert error.message.startswith("ServiceGroup pool: sidecar acme at /socket: ")
    assert (error.is_exhausted, error.is_permanent) == meaning
    assert calls(registry, "Stats", spelled) == 1


async def test_a_long_detail_is_cut(client, stub):
    stub.answer = refused(grpc.StatusCode.INTERNAL, "x" * 1000)
    with pytest.raises(IpamError) as raised:
        await client.stats(GROUP)
    assert raised.value.message.count("x") <= 301


async def test_groups_with_one_socket_share_a_channel_until_it_is_closed(client, stub):
    stub.answer = messages.StatsResponse()
    await client.stats(GROUP)
    await client.stats(ServiceGroup("other", source=ExternalSource("acme", "/socket")))
    await client.stats(ServiceGroup("third", source=ExternalSource("acme", "/third")))
    assert list(stub.channels) == ["unix:/socket", "unix:/third"]
    await client.close()
    assert all(channel.is_closed for channel in stub.channels.values())
    await client.close()


async def test_a_group_of_another_kind_is_a_fault(client):
    with pytest.raises(TypeError):
        await client.stats(ServiceGroup("b", source=NetBoxSource("https://netbox", "tenant")))

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses from a sidecar: the sample as a process, and misbehaving ones."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from ipaddress import ip_address

import grpc
import grpc.aio
import pytest
from prometheus_client import CollectorRegistry

from purelb.core.allocation.ipam import IpamRequest
from purelb.core.model import ExternalSource, NetBoxSource, ServiceGroup, ServiceKey
from purelb_agent.allocator.metrics import AllocatorMetrics
from purelb_agent.ipam.external import External
from purelb_agent.ipam.port import IpamError
from purelb_agent.ipam.sources import Sources
from purelb_agent.kube.client import ApiError
from purelb_agent.proto import ipam_pb2 as messages
from tests.support import ROOT

SAMPLE = ROOT / "demo/ipam/server.py"
WEB, API = ServiceKey("default", "web"), ServiceKey("default", "api")
RANGES = ["10.92.1.5-10.92.1.6", "fd92::5-fd92::6"]
SERVICE = "purelb.ipam.v1.IPAM"
# The sidecar is a process, which starts in a second, or in many on a busy machine.
pytestmark = pytest.mark.timeout(90)


class Sidecar:
    """The sample sidecar, started and killed as by a kubelet."""

    def __init__(self, folder):
        self.socket, self._file = folder / "ipam.sock", folder / "given.json"
        self._process = None

    async def start(self):
        argv = [sys.executable, SAMPLE, "--socket", self.socket, "--file", self._file, *RANGES]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "agent")}
        self._process = await asyncio.create_subprocess_exec(*argv, env=environment)
        async with grpc.aio.insecure_channel(f"unix:{self.socket}") as channel:
            await asyncio.wait_for(channel.channel_ready(), 30)

    async def kill(self):
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


@pytest.fixture
async def sidecar(tmp_path):
    made = Sidecar(tmp_path)
    await made.start()
    yield made
    await made.kill()


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def rpcs(registry):
    return AllocatorMetrics(registry).sidecars


async def c1():
    return "c1"


def leads():
    return True


@pytest.fixture
async def sources(rpcs, tmp_path):
    async with Sources(rpcs, cluster=c1, may_ask=leads, secret=tmp_path) as made:
        yield made


@pytest.fixture
def group(tmp_path):
    return ServiceGroup("elsewhere", source=ExternalSource("sample", str(tmp_path / "ipam.sock")))


def wants(service=WEB, families=(4, 6), **more):
    return IpamRequest(service, families=families, **more)


def texts(leased):
    return [str(address) for address in leased]


def counted(registry, method, code):
    name = "purelb_allocator_sidecar_rpc_total"
    return registry.get_sample_value(
        name, {"method": f"/purelb.ipam.v1.IPAM/{method}", "code": code}
    )


async def test_repeated_requests_of_a_service_get_the_same_addresses(
    sidecar, sources, group, registry
):
    for _time in range(2):
        assert texts(await sources.allocate(group, wants())) == ["10.92.1.5", "fd92::5"]
    assert texts(await sources.allocate(group, wants(API))) == ["10.92.1.6", "fd92::6"]
    assert counted(registry, "Allocate", "OK") == 3


@pytest.mark.parametrize(("version", "address"), [(4, "10.92.1.6"), (6, "fd92::6")])
async def test_requested_address_is_allocated_and_shared_by_key(
    sidecar, sources, group, version, address
):
    explicit = (ip_address(address),)
    shared = wants(explicit=explicit, sharing_key="k")
    assert texts(await sources.allocate(group, shared)) == [address]
    with pytest.raises(IpamError, match="belongs to default/web: ask") as refused:
        await sources.allocate(group, wants(API, explicit=explicit))
    assert refused.value.is_permanent
    again = wants(API, explicit=explicit, sharing_key="k")
    assert texts(await sources.allocate(group, again)) == [address]


async def test_released_address_is_free(sidecar, sources, group):
    await sources.allocate(group, wants())
    await sources.release(group, WEB, ip_address("10.92.1.5"))
    assert texts(await sources.allocate(group, wants(API))) == ["10.92.1.5", "fd92::6"]
    await sources.release(group, WEB, None)
    await sources.release(group, WEB, None)
    stats = await sources.stats(group)
    assert (stats.in_use, stats.size) == ({4: 1, 6: 1}, {4: 2, 6: 2})
    assert stats.display == tuple(RANGES)


async def test_exhausted_pool_is_reported(sidecar, sources, group, registry):
    for name in ("a", "b"):
        await sources.allocate(group, wants(ServiceKey("default", name), families=(4,)))
    with pytest.raises(IpamError, match="ResourceExhausted: no address is left") as refused:
        await sources.allocate(group, wants(families=(4,)))
    assert (refused.value.is_exhausted, refused.value.is_permanent) == (True, False)
    where = f"ServiceGroup elsewhere: sidecar sample at {sidecar.socket}: "
    assert str(refused.value).startswith(where)
    assert counted(registry, "Allocate", "ResourceExhausted") == 1


async def test_restarted_sidecar_keeps_its_allocations(sidecar, sources, group, registry):
    first = await sources.allocate(group, wants())
    await sidecar.kill()
    with pytest.raises(IpamError, match=r"Unavailable: .*see that its container runs") as refused:
        await sources.allocate(group, wants())
    assert (refused.value.is_exhausted, refused.value.is_permanent) == (False, False)
    assert counted(registry, "Allocate", "Unavailable") == 1
    await sidecar.start()
    assert await answered(sources, group) == first


async def answered(sources, group):
    """Ask until there is an answer: gRPC reconnects after 1 s, more or less by a fifth."""
    deadline = time.monotonic() + 5
    while True:
        try:
            return await sources.allocate(group, wants())
        except IpamError:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)


async def test_missing_socket_is_retried_later(sources, group):
    with pytest.raises(IpamError, match="Unavailable") as refused:
        await sources.stats(group)
    assert not refused.value.is_permanent


def answers(**methods):
    """Return a handler with raw methods, which may answer with invalid messages."""
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(method) for name, method in methods.items()
    }
    return grpc.method_handlers_generic_handler(SERVICE, handlers)


@pytest.fixture
async def serve(tmp_path):
    servers = []

    async def start(**methods):
        server = grpc.aio.server()
        server.add_generic_rpc_handlers([answers(**methods)])
        server.add_insecure_port(f"unix:{tmp_path / 'ipam.sock'}")
        await server.start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        await server.stop(None)


def says(*ips):
    async def method(_request, _context):
        given = [messages.AllocatedIP(ip=ip) for ip in ips]
        return messages.AllocateResponse(ips=given).SerializeToString()

    return method


@pytest.mark.parametrize(
    ("ips", "problem"),
    [
        (["10.92.1.300"], "it gave '10.92.1.300', which is no address"),
        (["10.92.1.5/24"], "which is no address"),
        (["10.92.1.5", "10.92.1.6"], "one address of each wanted family"),
        (["10.92.1.5", "fd92::5", "fd92::6"], "one address of each wanted family"),
        (["::"], "which no Service can have"),
        (["127.0.0.1"], "which no Service can have"),
        (["ff02::1"], "which no Service can have"),
        (["fe80::1"], "which no Service can have"),
    ],
)
async def test_unusable_addresses_are_refused(sources, serve, group, ips, problem):
    await serve(Allocate=says(*ips))
    with pytest.raises(IpamError, match=problem) as refused:
        await sources.allocate(group, wants())
    assert refused.value.is_permanent


async def test_other_address_than_requested_is_refused(sources, serve, group):
    await serve(Allocate=says("10.92.1.5"))
    with pytest.raises(IpamError, match=r"it gave 10\.92\.1\.5 instead of 10\.92\.1\.6"):
        await sources.allocate(group, wants(explicit=(ip_address("10.92.1.6"),)))


async def test_address_of_an_unrequested_family_is_refused(sources, serve, group):
    await serve(Allocate=says("fd92::5"))
    with pytest.raises(IpamError, match="one address of each wanted family"):
        await sources.allocate(group, wants(families=(4,)))


async def test_empty_answer_means_an_empty_pool(sources, serve, group):
    await serve(Allocate=says())
    with pytest.raises(IpamError, match="gave no address") as refused:
        await sources.allocate(group, wants())
    assert refused.value.is_exhausted


async def test_unknown_capacity_is_reported_as_unknown(sources, serve, group):
    async def stats(_request, _context):
        return messages.StatsResponse(in_use_v4=3, size_v4=9).SerializeToString()

    await serve(Stats=stats)
    found = await sources.stats(group)
    assert (found.in_use, found.size) == ({4: 3, 6: 0}, {4: None, 6: None})


async def test_slow_sidecar_times_out(serve, group, rpcs, registry):
    async def slow(_request, _context):
        await asyncio.sleep(60)

    await serve(Allocate=slow)
    external = External(rpcs, seconds=0.3)
    with pytest.raises(IpamError, match="DeadlineExceeded") as refused:
        await external.allocate(group, wants())
    await external.close()
    assert not refused.value.is_permanent
    assert counted(registry, "Allocate", "DeadlineExceeded") == 1


async def test_malformed_answer_is_the_sidecars_error(sources, serve, group, registry):
    async def garbage(_request, _context):
        return b"\xff\xff garbage"

    await serve(Allocate=garbage)
    with pytest.raises(IpamError, match=r"its answer is not one of proto/ipam\.proto"):
        await sources.allocate(group, wants())
    assert counted(registry, "Allocate", "Internal") == 1


async def test_request_is_retried_after_the_sidecar_dies(sources, serve, group):
    started = asyncio.Event()

    async def hang(_request, _context):
        started.set()
        await asyncio.sleep(60)

    server = await serve(Allocate=hang)
    asking = asyncio.create_task(sources.allocate(group, wants()))
    await started.wait()
    await server.stop(None)
    with pytest.raises(IpamError) as refused:
        await asking
    assert not refused.value.is_permanent


async def test_other_grpc_service_behind_the_socket_is_reported(sources, serve, group):
    await serve(Other=says())
    with pytest.raises(IpamError, match=r"Unimplemented: .*must serve purelb\.ipam\.v1") as refused:
        await sources.stats(group)
    assert refused.value.is_permanent


async def test_server_without_grpc_is_an_error(sources, group, tmp_path):
    async def rude(_reader, writer):
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    server = await asyncio.start_unix_server(rude, tmp_path / "ipam.sock")
    with pytest.raises(IpamError, match="Unavailable"):
        await sources.stats(group)
    server.close()


async def test_holders_of_a_sidecars_addresses_are_unknown(sidecar, sources, group):
    await sources.allocate(group, wants())
    assert await sources.holders(group) == frozenset()


async def test_each_group_uses_its_own_source(sources, group):
    netbox = ServiceGroup(
        "elsewhere", source=NetBoxSource("http://127.0.0.1:9", "lab", allows_http=True)
    )
    with pytest.raises(IpamError, match="there is no token for NetBox"):
        await sources.stats(netbox)
    with pytest.raises(IpamError, match="sidecar sample"):
        await sources.release(group, WEB, None)


async def test_netbox_waits_until_the_clusters_name_is_known(rpcs, tmp_path):
    answers = [ApiError(0, "no connection")]

    async def cluster():
        if answers:
            raise answers.pop()
        return "c1"

    netbox = ServiceGroup(
        "elsewhere", source=NetBoxSource("http://127.0.0.1:9", "lab", allows_http=True)
    )
    async with Sources(rpcs, cluster=cluster, may_ask=leads, secret=tmp_path) as sources:
        with pytest.raises(IpamError, match="not known yet: no connection") as refused:
            await sources.stats(netbox)
        assert not refused.value.is_permanent
        with pytest.raises(IpamError, match="there is no token for NetBox"):
            await sources.stats(netbox)


def test_protobuf_field_numbers_are_stable():
    asked = messages.AllocateRequest(pool="p", service="n/s", sharing_key="k")
    asked.explicit.ips.append("1.2.3.4")
    assert asked.SerializeToString() == b'\n\x01p\x12\x03n/s\x1a\x01k"\t\n\x071.2.3.4'
    families = messages.AllocateRequest(families=messages.Families(want_ipv4=True, want_ipv6=True))
    assert families.SerializeToString() == b"*\x04\x08\x01\x10\x01"
    answer = messages.AllocateResponse(ips=[messages.AllocatedIP(ip="::1")])
    assert answer.SerializeToString() == b"\n\x05\n\x03::1"
    one = messages.ReleaseRequest(pool="p", service="s", ip="i")
    assert one.SerializeToString() == b"\n\x01p\x12\x01s\x1a\x01i"
    assert messages.ReleaseRequest(all=True).SerializeToString() == b" \x01"
    assert messages.StatsRequest(pool="p").SerializeToString() == b"\n\x01p"
    stats = messages.StatsResponse(
        in_use_v4=1,
        in_use_v6=2,
        size_v4=3,
        size_v6=4,
        has_known_capacity=True,
        display_addresses=["d"],
    )
    assert stats.SerializeToString() == b"\x08\x01\x10\x02\x18\x03 \x04(\x012\x01d"


def test_generated_code_matches_the_proto_file(tmp_path):
    subprocess.run([sys.executable, ROOT / "agent/generate.py", tmp_path], check=True)
    made = {path.name: path.read_text() for path in tmp_path.rglob("ipam_pb2*")}
    assert len(made) == 3
    folder = ROOT / "agent/purelb_agent/proto"
    assert made == {name: (folder / name).read_text() for name in made}


async def test_standby_neither_allocates_nor_releases(rpcs, tmp_path, group):
    def stands_by():
        return False

    async with Sources(rpcs, cluster=c1, may_ask=stands_by, secret=tmp_path) as sources:
        request = IpamRequest(WEB, families=(4,))
        for asked in (sources.allocate(group, request), sources.release(group, WEB, None)):
            with pytest.raises(IpamError, match="does not lead") as refused:
                await asked
            assert not refused.value.is_permanent

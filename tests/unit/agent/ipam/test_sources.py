# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which system is called for a group, and which of its answers are refused."""

from __future__ import annotations

from ipaddress import ip_address

import pytest
from prometheus_client import CollectorRegistry

from purelb.core.allocation.ipam import IpamRequest, Leased, Stats
from purelb.core.model import ExternalSource, NetBoxSource, ServiceGroup, ServiceKey
from purelb_agent.ipam import sources as module
from purelb_agent.ipam.metrics import SidecarMetrics
from purelb_agent.ipam.port import IpamError
from purelb_agent.ipam.sources import Sources, cluster_name
from purelb_agent.kube.client import ApiError
from purelb_agent.runtime.metrics import MetricFactory
from tests.support.agent.fake_api import FakeApi

KEY = ServiceKey("default", "web")
SIDECAR = ServiceGroup("a", source=ExternalSource("acme", "/socket"))
NETBOX = ServiceGroup("b", source=NetBoxSource("https://netbox", "tenant"))
V4, V6 = ip_address("10.0.0.1"), ip_address("fd00::1")


class System:
    """Gives what the test wrote down; remembers its calls."""

    def __init__(self, *_args, **_more):
        self.addresses, self.calls, self.is_closed = (V4,), [], False

    async def allocate(self, group, _request):
        self.calls.append(("allocate", group.name))
        return tuple(map(Leased, self.addresses))

    async def release(self, group, _service, _address):
        self.calls.append(("release", group.name))

    async def stats(self, group):
        self.calls.append(("stats", group.name))
        return Stats({}, {})

    async def holders(self, group):
        self.calls.append(("holders", group.name))
        return frozenset({KEY})

    async def close(self):
        self.is_closed = True


@pytest.fixture
def sidecar(monkeypatch):
    system = System()
    monkeypatch.setattr(module, "External", lambda _metrics: system)
    return system


@pytest.fixture
def netbox(monkeypatch):
    system = System()

    def made(_secret, *, cluster):
        system.cluster = cluster
        return system

    monkeypatch.setattr(module, "NetBox", made)
    return system


class World:
    def __init__(self):
        self.leads = True
        self.failures = []
        self.asked = 0

    async def cluster(self):
        self.asked += 1
        if self.failures:
            raise self.failures.pop()
        return "c1"


@pytest.fixture
def world():
    return World()


@pytest.fixture
async def sources(sidecar, netbox, world):
    metrics = SidecarMetrics(MetricFactory(CollectorRegistry()))
    async with Sources(metrics, cluster=world.cluster, may_ask=lambda: world.leads) as made:
        yield made
    assert sidecar.is_closed


async def call(sources, method, group):
    if method == "allocate":
        return await sources.allocate(group, IpamRequest(KEY, families=(4,)))
    if method == "release":
        return await sources.release(group, KEY, None)
    return await getattr(sources, method)(group)


METHODS = pytest.mark.parametrize("method", ["allocate", "release", "stats", "holders"])


@METHODS
async def test_a_group_with_a_sidecar_is_that_sidecars(sources, sidecar, netbox, world, method):
    await call(sources, method, SIDECAR)
    assert sidecar.calls == [(method, "a")]
    assert (netbox.calls, world.asked) == ([], 0)


@METHODS
async def test_a_group_with_a_netbox_is_that_netboxes(sources, sidecar, netbox, method):
    await call(sources, method, NETBOX)
    assert netbox.calls == [(method, "b")]
    assert netbox.cluster == "c1"
    assert sidecar.calls == []


async def test_a_netbox_is_closed_at_the_end(sidecar, netbox, world):
    metrics = SidecarMetrics(MetricFactory(CollectorRegistry()))
    async with Sources(metrics, cluster=world.cluster, may_ask=lambda: True) as sources:
        await sources.stats(NETBOX)
    assert netbox.is_closed


async def test_the_clusters_name_is_read_once(sources, world):
    await sources.stats(NETBOX)
    await sources.stats(NETBOX)
    assert world.asked == 1


@METHODS
async def test_without_the_clusters_name_a_netbox_is_not_called(sources, netbox, world, method):
    world.failures = [ApiError(500, "no")]
    with pytest.raises(IpamError, match=r"ServiceGroup b: .*not known yet: no") as raised:
        await call(sources, method, NETBOX)
    assert not raised.value.is_permanent
    assert netbox.calls == []
    await call(sources, method, NETBOX)


@pytest.mark.parametrize("method", ["allocate", "release"])
async def test_a_process_that_does_not_lead_changes_nothing(sources, sidecar, world, method):
    world.leads = False
    with pytest.raises(IpamError, match="does not lead"):
        await call(sources, method, SIDECAR)
    assert sidecar.calls == []
    await sources.stats(SIDECAR)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["0.0.0.0"], "which no Service can have"),  # noqa: S104 - an answer
        (["224.0.0.1"], "which no Service can have"),
        (["127.0.0.1"], "which no Service can have"),
        (["169.254.0.1"], "which no Service can have"),
        (["::"], "which no Service can have"),
        (["ff02::1"], "which no Service can have"),
        (["::1"], "which no Service can have"),
        (["fe80::1"], "which no Service can have"),
        (["10.0.0.1", "10.0.0.2"], "one address of each wanted family"),
        (["fd00::1"], "one address of each wanted family"),
    ],
)
async def test_an_unusable_answer_is_a_permanent_error(sources, sidecar, given, words):
    sidecar.addresses = tuple(map(ip_address, given))
    with pytest.raises(IpamError, match=words) as raised:
        await sources.allocate(SIDECAR, IpamRequest(KEY, families=(4,)))
    assert raised.value.is_permanent


async def test_other_addresses_than_the_explicit_ones_are_a_permanent_error(sources, sidecar):
    sidecar.addresses = (V6,)
    with pytest.raises(IpamError, match=r"gave fd00::1 instead of 10\.0\.0\.1") as raised:
        await sources.allocate(SIDECAR, IpamRequest(KEY, explicit=(V4,)))
    assert raised.value.is_permanent


@pytest.mark.parametrize("addresses", [(V4, V6), (V4,), (V6,)])
async def test_one_address_of_each_family_or_of_some_is_taken(sources, sidecar, addresses):
    sidecar.addresses = addresses
    leased = await sources.allocate(SIDECAR, IpamRequest(KEY, families=(4, 6)))
    assert tuple(lease.address for lease in leased) == addresses


async def test_the_clusters_name_is_the_beginning_of_a_uid():
    api = FakeApi()
    body = {"metadata": {"uid": "1234abcd-0000-1111-2222-333344445555"}}
    api.answer("GET", "/api/v1/namespaces/kube-system", body)
    assert await cluster_name(api) == "1234abcd"


def test_an_errors_place_is_put_in_front():
    error = IpamError("full", is_exhausted=True).at("ServiceGroup a")
    assert (error.message, error.is_exhausted, error.is_permanent) == (
        "ServiceGroup a: full",
        True,
        False,
    )

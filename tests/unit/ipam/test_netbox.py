# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses from a NetBox: the same tests with a fake and, in `make netbox`, with a real one."""

from __future__ import annotations

import asyncio
import uuid
from ipaddress import ip_address

import pytest

from purelb.core.allocation.ipam import IpamRequest, Leased
from purelb.core.model import NetBoxSource, ServiceGroup, ServiceKey
from purelb_agent.ipam.netbox.source import NetBox
from purelb_agent.ipam.port import IpamError
from tests.support.netbox.server import running
from tests.support.netbox.standin import Serving, StandIn

WEB, API = ServiceKey("default", "web"), ServiceKey("default", "api")
# A name that is a prefix of another one.
WEB2 = ServiceKey("default", "web-2")
FOUR, SIX = ["10.91.1.5/24", "10.91.1.6/24"], ["fd91::5/64", "fd91::6/64"]


class StandInBed:
    """A fake NetBox with one tenant."""

    def __init__(self, standin):
        self.standin, self.tokens, self.url = standin, standin.tokens, standin.url
        self.slug = "lab"
        self._tenant = standin.add_tenant("The Lab", "lab")
        standin.add_tenant("Another", "another")

    async def add(self, *addresses, **more):
        for address in addresses:
            self.standin.add_address(self._tenant, address, **more)

    async def write(self, address, **fields):
        records = self.standin.addresses.values()
        self.standin.change(next(r["id"] for r in records if r["address"] == address), **fields)

    async def shown(self):
        return {
            record["address"]: (record["status"]["value"], record["description"])
            for record in self.standin.addresses.values()
        }


class RealBed:
    """A new tenant in a real NetBox."""

    def __init__(self, server):
        self._server, self.tokens, self.url = server, server.tokens, server.url
        self.slug = f"lab-{uuid.uuid4().hex[:8]}"
        body = {"name": f"The {self.slug}", "slug": self.slug}
        self._tenant = server.request("POST", "tenancy/tenants/", body)["id"]
        self._numbers = {}

    async def _ask(self, *args):
        return await asyncio.to_thread(self._server.request, *args)

    async def add(self, *addresses, **more):
        for address in addresses:
            body = {"address": address, "tenant": self._tenant, "status": "reserved", **more}
            made = await self._ask("POST", "ipam/ip-addresses/", body)
            self._numbers[address] = made["id"]

    async def write(self, address, **fields):
        await self._ask("PATCH", f"ipam/ip-addresses/{self._numbers[address]}/", fields)

    async def shown(self):
        found = await self._ask("GET", f"ipam/ip-addresses/?tenant_id={self._tenant}&limit=0")
        return {
            record["address"]: (record["status"]["value"], record["description"])
            for record in found["results"]
        }

    async def clear(self):
        for number in self._numbers.values():
            await self._ask("DELETE", f"ipam/ip-addresses/{number}/")


@pytest.fixture(scope="module")
def real_netbox():
    with running() as server:
        yield server


@pytest.fixture(
    params=[
        "stand-in",
        "stand-in without etags",
        pytest.param("real", marks=pytest.mark.real_netbox),
    ]
)
async def bed(request):
    if request.param == "real":
        made = RealBed(request.getfixturevalue("real_netbox"))
        yield made
        await made.clear()
        return
    standin = StandIn(has_etags=request.param == "stand-in", largest_page=3)
    async with Serving(standin.app()) as serving:
        standin.url = serving.url
        yield StandInBed(standin)


@pytest.fixture
def secret(tmp_path, bed):
    (tmp_path / "token").write_text(bed.tokens["old"] + "\n")
    return tmp_path


@pytest.fixture
async def netbox(secret):
    # The real one is slow next to other tests.
    made = NetBox(secret, cluster="c1", seconds=20)
    yield made
    await made.close()


@pytest.fixture
def group(bed):
    return ServiceGroup("elsewhere", source=NetBoxSource(bed.url, bed.slug, allows_http=True))


def wants(service=WEB, families=(4, 6), **more):
    return IpamRequest(service, families=families, **more)


def texts(leased):
    return [str(address) for address in leased]


# Starting the real one takes long.
pytestmark = pytest.mark.timeout(180)


async def test_service_gets_the_first_reserved_address_of_each_family(bed, netbox, group):
    await bed.add(*FOUR, *SIX, description="for anyone")
    assert texts(await netbox.allocate(group, wants())) == [FOUR[0], SIX[0]]
    shown = await bed.shown()
    assert shown[FOUR[0]] == shown[SIX[0]] == ("active", "purelb c1 default/web")
    assert shown[FOUR[1]] == shown[SIX[1]] == ("reserved", "for anyone")


@pytest.mark.parametrize(("version", "pool"), [(4, FOUR), (6, SIX)], ids=["v4", "v6"])
async def test_repeated_request_gets_the_same_address(bed, netbox, group, version, pool):
    await bed.add(*pool)
    first = await netbox.allocate(group, wants(families=(version,)))
    assert await netbox.allocate(group, wants(families=(version,))) == first
    other = await netbox.allocate(group, wants(WEB2, families=(version,)))
    assert texts([*first, *other]) == pool


async def test_released_address_is_reserved_and_its_description_empty(bed, netbox, group):
    await bed.add(*FOUR, *SIX)
    await netbox.allocate(group, wants())
    await netbox.release(group, WEB, ip_address("10.91.1.5"))
    assert (await bed.shown())[FOUR[0]] == ("reserved", "")
    assert (await bed.shown())[SIX[0]] == ("active", "purelb c1 default/web")
    await netbox.release(group, WEB, None)
    await netbox.release(group, WEB, None)
    assert set((await bed.shown()).values()) == {("reserved", "")}


async def test_service_name_with_another_name_as_prefix_is_distinct(bed, netbox, group):
    await bed.add(*FOUR)
    await netbox.allocate(group, wants(WEB2, families=(4,)))
    await netbox.release(group, WEB, None)
    assert (await bed.shown())[FOUR[0]] == ("active", "purelb c1 default/web-2")


async def test_other_cluster_with_the_same_names_gets_other_addresses(bed, netbox, group, secret):
    await bed.add(*FOUR)
    there = NetBox(secret, cluster="c2", seconds=20)
    mine = await netbox.allocate(group, wants(families=(4,)))
    theirs = await there.allocate(group, wants(families=(4,)))
    await there.close()
    assert texts([*mine, *theirs]) == FOUR
    await netbox.release(group, WEB, None)
    assert (await bed.shown())[FOUR[1]] == ("active", "purelb c2 default/web")


async def test_concurrent_allocators_get_different_addresses(bed, netbox, group, secret):
    await bed.add(*FOUR)
    there = NetBox(secret, cluster="c2", seconds=20)
    both = await asyncio.gather(
        netbox.allocate(group, wants(families=(4,))),
        there.allocate(group, wants(families=(4,))),
        return_exceptions=True,
    )
    await there.close()
    got = [str(result[0]) for result in both if not isinstance(result, IpamError)]
    assert len(set(got)) == len(got) >= 1
    shown = await bed.shown()
    for cluster, leased in zip(("c1", "c2"), both, strict=True):
        if not isinstance(leased, IpamError):
            assert shown[str(leased[0])] == ("active", f"purelb {cluster} default/web")


@pytest.mark.parametrize(("version", "pool"), [(4, FOUR), (6, SIX)], ids=["v4", "v6"])
async def test_requested_address_is_allocated(bed, netbox, group, version, pool):
    await bed.add(*pool)
    address = ip_address(pool[1].partition("/")[0])
    leased = await netbox.allocate(group, wants(explicit=(address,)))
    assert leased == await netbox.allocate(group, wants(explicit=(address,)))
    assert texts(leased) == [pool[1]]
    assert (await bed.shown())[pool[0]][0] == "reserved"


async def test_services_with_one_key_share_an_address_until_the_last_releases(bed, netbox, group):
    await bed.add(FOUR[0])
    address = (ip_address("10.91.1.5"),)
    await netbox.allocate(group, wants(WEB, explicit=address, sharing_key="k"))
    with pytest.raises(IpamError, match="belongs to default/web: request another"):
        await netbox.allocate(group, wants(API, explicit=address))
    await netbox.allocate(group, wants(API, explicit=address, sharing_key="k"))
    assert (await bed.shown())[FOUR[0]] == ("active", "purelb c1 default/web default/api")
    await netbox.release(group, WEB, None)
    assert (await bed.shown())[FOUR[0]] == ("active", "purelb c1 default/api")
    await netbox.release(group, API, None)
    assert (await bed.shown())[FOUR[0]] == ("reserved", "")


async def test_more_sharing_services_than_fit_the_description_are_refused(bed, netbox, group):
    await bed.add(FOUR[0])
    explicit = (ip_address("10.91.1.5"),)
    long = [ServiceKey("n" * 60, f"{i}" * 60) for i in range(2)]
    await netbox.allocate(group, wants(long[0], explicit=explicit, sharing_key="k"))
    with pytest.raises(IpamError, match="no room in its description"):
        await netbox.allocate(group, wants(long[1], explicit=explicit, sharing_key="k"))


@pytest.mark.parametrize(
    ("address", "status", "problem"),
    [
        ("10.91.1.9/24", "reserved", "10.91.1.5 is no address of tenant"),
        ("10.91.1.5/24", "active", "status 'active' and the description 'printer': set"),
        ("10.91.1.5/24", "deprecated", "status 'deprecated'"),
    ],
)
async def test_address_that_is_not_ours_is_refused(bed, netbox, group, address, status, problem):
    await bed.add(address, status=status, description="printer")
    with pytest.raises(IpamError, match=problem) as refused:
        await netbox.allocate(group, wants(explicit=(ip_address("10.91.1.5"),)))
    assert (refused.value.is_permanent, refused.value.is_exhausted) == (True, False)
    assert (await bed.shown())[address] == (status, "printer")


async def test_pool_without_reserved_addresses_is_exhausted(bed, netbox, group):
    await bed.add(FOUR[0])
    assert texts(await netbox.allocate(group, wants())) == [FOUR[0]]
    with pytest.raises(IpamError, match=r"no IPv4 and IPv6 address left: .*'reserved'") as refused:
        await netbox.allocate(group, wants(API))
    assert (refused.value.is_permanent, refused.value.is_exhausted) == (False, True)
    assert str(refused.value).startswith(f"ServiceGroup elsewhere: NetBox {bed.url}: ")


async def test_stats_count_own_and_free_addresses(bed, netbox, group, secret):
    await bed.add(*FOUR, *SIX, "10.91.1.7/24", "10.91.2.1/25")
    await bed.add("10.91.1.8/24", status="active", description="printer")
    await netbox.allocate(group, wants())
    stats = await netbox.stats(group)
    assert (stats.in_use, stats.size) == ({4: 1, 6: 1}, {4: 4, 6: 2})
    assert stats.display == ("10.91.1.5-10.91.1.7/24", "10.91.2.1/25", "fd91::5-fd91::6/64")


async def test_holders_are_the_services_of_this_cluster(bed, netbox, group, secret):
    await bed.add(*FOUR, *SIX)
    there = NetBox(secret, cluster="c11", seconds=20)
    await netbox.allocate(group, wants(WEB))
    await there.allocate(group, wants(API))
    await there.close()
    assert await netbox.holders(group) == {WEB}
    await netbox.release(group, WEB, None)
    assert await netbox.holders(group) == frozenset()


async def test_pool_of_several_pages_is_read_completely(bed, netbox, group):
    pool = [f"10.91.3.{i}/24" for i in range(1, 8)]
    await bed.add(*pool)
    assert (await netbox.stats(group)).size == {4: 7, 6: 0}
    keys = [ServiceKey("default", f"s{i}") for i in range(7)]
    got = [await netbox.allocate(group, wants(key, families=(4,))) for key in keys]
    assert texts(one for (one,) in got) == pool


async def test_tenant_can_be_given_by_name(bed, netbox, group):
    await bed.add(*FOUR)
    name = "The Lab" if bed.slug == "lab" else f"The {bed.slug}"
    named = ServiceGroup("elsewhere", source=NetBoxSource(bed.url, name, allows_http=True))
    assert texts(await netbox.allocate(named, wants())) == [FOUR[0]]


async def test_token_of_the_newer_format_is_accepted(bed, netbox, group, secret):
    await bed.add(*FOUR)
    (secret / "token").write_text(bed.tokens["new"])
    assert texts(await netbox.allocate(group, wants())) == [FOUR[0]]


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        ("c" * 40, "answers 403: Invalid v1 token; put a NetBox token"),
        ("powerless", "answers 403: You do not have permission.*change IP addresses"),
        ("", "there is no token for NetBox: put"),
        ("hid den", "there is no token for NetBox: put"),
        ("hidden\nhidden", "there is no token for NetBox: put"),
        ("hidd\u00e9n", "there is no token for NetBox: put"),
        (None, "there is no token for NetBox: put"),
    ],
    ids=["unknown", "may nothing", "empty", "blank", "lines", "not ascii", "no file"],
)
async def test_invalid_token_is_an_error_until_it_is_replaced(
    bed, netbox, group, secret, token, problem
):
    await bed.add(*FOUR)
    if token is None:
        (secret / "token").unlink()
    else:
        (secret / "token").write_text(bed.tokens.get(token, token))
    with pytest.raises(IpamError, match=problem) as refused:
        await netbox.allocate(group, wants())
    assert refused.value.is_permanent
    assert "hid" not in str(refused.value)
    (secret / "token").write_text(bed.tokens["old"])
    assert texts(await netbox.allocate(group, wants())) == [FOUR[0]]


async def test_unknown_tenant_is_named_in_the_error(bed, netbox):
    group = ServiceGroup("g", source=NetBoxSource(bed.url, "powerless", allows_http=True))
    with pytest.raises(
        IpamError, match="no tenant 'powerless' that the token's user may see: write"
    ):
        await netbox.stats(group)


async def test_url_without_a_netbox_is_named_in_the_error(bed, netbox):
    group = ServiceGroup("g", source=NetBoxSource(f"{bed.url}/netbox", bed.slug, allows_http=True))
    with pytest.raises(IpamError, match=r"spec\.netbox\.url"):
        await netbox.stats(group)


async def test_address_without_a_mask_gets_the_host_prefix():
    assert str(Leased(ip_address("10.91.1.5"))) == "10.91.1.5"

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The client and a fake NetBox; tests/unit/ipam has more, also for a real one."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.allocation.ipam import IpamRequest
from purelb.core.model import NetBoxSource, ServiceGroup, ServiceKey
from purelb_agent.ipam.netbox import pool as pool_module
from purelb_agent.ipam.netbox.source import NetBox
from purelb_agent.ipam.port import IpamError
from tests.support.agent.leaks import open_sockets
from tests.support.netbox.standin import Serving, StandIn

pytestmark = pytest.mark.real_time
WEB, SHOP = ServiceKey("default", "web"), ServiceKey("default", "shop")
# Seconds between two looks at the sockets.
PAUSE = 0.01
V4, V6 = ip_address("10.0.0.1"), ip_address("fd00::1")


@pytest.fixture(params=[True, False], ids=["etags", "no-etags"])
def standin(request, monkeypatch):
    monkeypatch.setattr(pool_module, "_SETTLE_SECONDS", 0.01)
    return StandIn(has_etags=request.param)


@pytest.fixture
async def group(standin):
    """A group of the addresses 10.0.0.1 and .2, fd00::1 of tenant `lab`."""
    async with Serving(standin.app()) as serving:
        standin.url = serving.url
        tenant = standin.add_tenant("Lab", "lab")
        for address in ("10.0.0.1/24", "10.0.0.2/24", "fd00::1/64"):
            standin.add_address(tenant, address)
        yield ServiceGroup("nb", source=NetBoxSource(serving.url, "lab", allows_http=True))


@pytest.fixture
def secret(tmp_path, standin):
    (tmp_path / "token").write_text(standin.tokens["new"])
    return tmp_path


@pytest.fixture
async def netbox(secret):
    made = NetBox(secret, cluster="c1", seconds=3)
    yield made
    await made.close()


def given(leased):
    return [(str(lease.address), lease.prefixlen) for lease in leased]


def states(standin):
    return [(a["status"]["value"], a["description"]) for a in standin.addresses.values()]


FREE = ("reserved", "")
OURS = ("active", "purelb c1 default/web")


class TestAllocate:
    async def test_a_service_gets_the_first_free_address_of_each_family(
        self, netbox, group, standin
    ):
        request = IpamRequest(WEB, families=(4, 6))
        assert given(await netbox.allocate(group, request)) == [("10.0.0.1", 24), ("fd00::1", 64)]
        assert states(standin) == [OURS, FREE, OURS]

    async def test_a_service_keeps_what_it_has(self, netbox, group):
        request = IpamRequest(WEB, families=(4,))
        first = await netbox.allocate(group, request)
        assert await netbox.allocate(group, request) == first

    async def test_without_a_free_address_the_pool_is_exhausted(self, netbox, group):
        await netbox.allocate(group, IpamRequest(SHOP, families=(6,)))
        with pytest.raises(IpamError, match="no IPv6 address left") as refused:
            await netbox.allocate(group, IpamRequest(WEB, families=(6,)))
        assert refused.value.is_exhausted

    async def test_an_address_that_another_client_takes_is_passed_over(
        self, netbox, group, standin
    ):
        def take(number):
            standin.change(number, status="active", description="somebody's")

        standin.before_patch = take
        leased = given(await netbox.allocate(group, IpamRequest(WEB, families=(4,))))
        expected = "10.0.0.2" if standin.has_etags else "10.0.0.1"
        # Without versions the later write wins, and it is checked a moment later.
        assert leased == [(expected, 24)]

    async def test_an_address_that_is_overwritten_right_after_is_not_ours(
        self, netbox, group, standin
    ):
        if standin.has_etags:
            pytest.skip("the server refuses such a write")
        change = standin.change

        def overwrite(number, **fields):
            change(number, **fields)
            if number == 1:
                change(1, status="active", description="somebody's")

        standin.change = overwrite
        leased = await netbox.allocate(group, IpamRequest(WEB, families=(4,)))
        assert given(leased) == [("10.0.0.2", 24)]


class TestExplicit:
    async def test_a_free_address_is_given_and_kept(self, netbox, group):
        request = IpamRequest(WEB, explicit=(ip_address("10.0.0.2"),))
        for _turn in range(2):
            assert given(await netbox.allocate(group, request)) == [("10.0.0.2", 24)]

    async def test_services_with_a_key_share_it(self, netbox, group, standin):
        for service in (WEB, SHOP):
            await netbox.allocate(group, IpamRequest(service, explicit=(V4,), sharing_key="k"))
        assert states(standin)[0] == ("active", "purelb c1 default/web default/shop")
        await netbox.release(group, WEB, V4)
        assert states(standin)[0] == ("active", "purelb c1 default/shop")

    async def test_too_many_services_find_no_room(self, netbox, group):
        first, second, third = (
            IpamRequest(ServiceKey("default", letter * 60), explicit=(V4,), sharing_key="k")
            for letter in "abc"
        )
        await netbox.allocate(group, first)
        await netbox.allocate(group, second)
        with pytest.raises(IpamError, match="no room in its description") as refused:
            await netbox.allocate(group, third)
        assert refused.value.is_permanent

    @pytest.mark.parametrize(
        ("change", "address", "message"),
        [
            ({}, "10.9.9.9", "10.9.9.9 is no address of tenant lab"),
            ({"description": "purelb c1 default/shop"}, "10.0.0.1", "belongs to default/shop"),
            ({"description": "mine"}, "10.0.0.1", "has the status 'active' and the description"),
        ],
        ids=["unknown", "another service's", "another client's"],
    )
    async def test_any_other_is_refused_for_good(
        self, netbox, group, standin, change, address, message
    ):
        if change:
            standin.change(1, status="active", **change)
        with pytest.raises(IpamError, match=message) as refused:
            await netbox.allocate(group, IpamRequest(WEB, explicit=(ip_address(address),)))
        assert refused.value.is_permanent


class TestRelease:
    @pytest.mark.parametrize(("address", "left"), [(V4, [FREE, FREE, OURS]), (None, [FREE] * 3)])
    async def test_one_or_all_addresses_become_free(self, netbox, group, standin, address, left):
        await netbox.allocate(group, IpamRequest(WEB, families=(4, 6)))
        await netbox.release(group, WEB, address)
        assert states(standin) == left

    async def test_an_address_that_changes_meanwhile_is_an_error(self, netbox, group, standin):
        if not standin.has_etags:
            pytest.skip("the server notices no such change")
        await netbox.allocate(group, IpamRequest(WEB, families=(4,)))
        standin.before_patch = lambda number: standin.change(number, comments="changed")
        with pytest.raises(IpamError, match=r"changing 10\.0\.0\.1"):
            await netbox.release(group, WEB, None)


class TestStats:
    async def test_free_addresses_and_ours_count(self, netbox, group, standin):
        await netbox.allocate(group, IpamRequest(WEB, families=(4,)))
        standin.change(2, status="active", description="somebody's")
        stats = await netbox.stats(group)
        assert (stats.in_use, stats.size) == ({4: 1, 6: 0}, {4: 1, 6: 1})

    async def test_holders_are_the_services_of_this_cluster(self, netbox, group, standin):
        standin.change(1, status="active", description="purelb c1 default/web default/shop")
        standin.change(2, status="active", description="purelb c2 default/other")
        assert await netbox.holders(group) == {WEB, SHOP}


class TestErrors:
    async def test_an_unknown_tenant_is_permanent(self, netbox, group):
        other = ServiceGroup(
            "nb", source=NetBoxSource(group.source.url, "powerless", allows_http=True)
        )
        with pytest.raises(IpamError, match="no tenant 'powerless'") as refused:
            await netbox.stats(other)
        assert refused.value.is_permanent

    async def test_the_name_of_a_tenant_will_do(self, netbox, group):
        named = ServiceGroup("nb", source=NetBoxSource(group.source.url, "Lab", allows_http=True))
        assert (await netbox.stats(named)).size == {4: 2, 6: 1}

    @pytest.mark.parametrize("token", ["", "two words", "é", None])
    async def test_without_a_token_nothing_is_sent(self, netbox, group, secret, standin, token):
        (secret / "token").unlink()
        if token is not None:
            (secret / "token").write_text(token)
        with pytest.raises(IpamError, match="no token for NetBox") as refused:
            await netbox.stats(group)
        assert refused.value.is_permanent
        assert standin.requests == []

    @pytest.mark.parametrize("method", ["allocate", "release", "stats", "holders"])
    async def test_the_token_is_not_sent_over_http_unless_the_group_says_so(
        self, netbox, group, standin, method
    ):
        source = replace(group.source, allows_http=False)
        arguments = {"allocate": [IpamRequest(WEB, families=(4,))], "release": [WEB, None]}
        with pytest.raises(IpamError, match=r"^ServiceGroup nb: NetBox http.*allowHTTP") as refused:
            await getattr(netbox, method)(replace(group, source=source), *arguments.get(method, []))
        assert refused.value.is_permanent
        assert standin.requests == []

    async def test_a_server_out_of_reach_is_tried_again(self, netbox):
        gone = ServiceGroup(
            "nb", source=NetBoxSource("http://127.0.0.1:9", "lab", allows_http=True)
        )
        with pytest.raises(IpamError, match="cannot be reached") as refused:
            await netbox.stats(gone)
        assert not refused.value.is_permanent

    async def test_an_error_that_is_kept_keeps_no_connection_open(
        self, netbox, group, secret, standin
    ):
        (secret / "token").write_text(standin.tokens["powerless"])
        before = open_sockets()
        with pytest.raises(IpamError, match="answers 403") as refused:
            await netbox.stats(group)
        async with asyncio.timeout(5):
            while open_sockets() - before:  # noqa: ASYNC110 - the server's end closes after ours
                await asyncio.sleep(PAUSE)
        assert refused.value.is_permanent

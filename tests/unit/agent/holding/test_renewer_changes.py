# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What makes the own Lease be written between two renewals, and how its node leaves."""

from __future__ import annotations

import asyncio

import pytest

from purelb.core.holding.deadline import HoldDeadline
from purelb.core.holding.right import RightState, same_start
from purelb_agent.holding.renewer import Said
from purelb_agent.kube.client import ApiError
from purelb_agent.runtime import clock
from tests.support.agent.kubernetes_objects import group_object, lease_object, service_object
from tests.support.agent.leased_node import COLLECTION, NETS, PATH, LeasedNode
from tests.support.agent.logs import Logged
from tests.support.core.snapshots import NET4, NET6, VIP4, VIP6


@pytest.fixture
def logged(caplog):
    return Logged(caplog)


@pytest.fixture
async def node():
    return LeasedNode()


class TestForged:
    async def test_an_epoch_that_another_program_wrote_is_left_at_once(self, node, logged):
        async with node.running():
            await node.until(1)
            forged = f"{node.lease.epoch}{'9' * 100}"
            node.store.leases.put(lease_object("n1", version="9", epoch=forged))
            node.look()
            await node.until(1.1)
            assert node.written_at == [0.0, 1.01]
            assert not same_start(node.lease.epoch, forged)
            assert node.store.hold_deadline is not None
        assert logged.fields("leaseForged") == [{"node": "n1", "epoch": forged[:64]}]


class TestSubnets:
    async def test_a_change_is_written_after_a_while_in_another_epoch(self, node, logged):
        async with node.running():
            await node.until(1)
            before = node.lease.epoch
            node.renewer.set_subnets((NET6,), at_once=False)
            await node.until(3.1)
            assert node.written_at == [0.0, 3.01]
            assert node.lease.subnets == (NET6,)
            assert node.lease.epoch == node.renewer.right.epoch != before
            assert node.store.subnets == (NET6,)
        assert logged.fields("subnetsChanged") == [{"subnets": str(NET6)}]

    async def test_those_of_another_configuration_are_written_at_once(self, node):
        async with node.running():
            await node.until(1)
            node.renewer.set_subnets((NET4,), at_once=True)
            await node.until(1.1)
            assert node.written_at == [0.0, 1.01]

    async def test_the_last_change_of_several_is_written(self, node):
        async with node.running():
            await node.until(1)
            for subnets in ((NET4,), (NET6,)):
                node.renewer.set_subnets(subnets, at_once=False)
                await asyncio.sleep(0.5)
            await node.until(4)
            assert [lease.subnets for _at, lease in node.writes] == [NETS, (NET6,)]

    async def test_those_that_are_back_soon_are_not_written(self, node):
        async with node.running():
            await node.until(1)
            for subnets in ((NET4,), NETS):
                node.renewer.set_subnets(subnets, at_once=False)
                await asyncio.sleep(0.5)
            await node.until(4.9)
            assert node.written_at == [0.0]

    async def test_those_that_change_while_others_are_written_are_written_next(self, node):
        async with node.running():
            await node.until(1)
            node.slow_writes(0.2)
            for subnets in ((NET4,), NETS):
                node.renewer.set_subnets(subnets, at_once=True)
                await asyncio.sleep(0.1)
            await node.until(1.5)
            assert [lease.subnets for _at, lease in node.writes] == [NETS, (NET4,), NETS]

    async def test_the_same_ones_change_nothing(self, node, logged):
        async with node.running():
            await node.until(1)
            node.renewer.set_subnets(NETS, at_once=True)
            await node.until(4.9)
            assert node.written_at == [0.0]
        assert "subnetsChanged" not in logged.events

    async def test_a_failed_write_of_others_leaves_the_epoch_before_for_good(self, node):
        async with node.running():
            first = node.lease.epoch
            node.refuse(times=1)
            node.renewer.set_subnets((NET4,), at_once=True)
            await node.until(0.1)
            assert node.renewer.right.epoch == first
            assert not node.renewer.right.may_add(clock.now())
            node.renewer.set_subnets(NETS, at_once=True)
            await node.until(3)
            assert node.lease.subnets == NETS
            assert node.lease.epoch not in {lease.epoch for _at, lease in node.writes[:-1]}

    async def test_those_that_others_changed_are_written_again(self, node):
        async with node.running():
            await node.until(1)
            node.store.leases.put(lease_object("n1", subnets=(NET4,)))
            node.renewer.ensure_current()
            await node.until(1.1)
            assert node.written_at == [0.0, 1.01]
            assert node.lease.subnets == NETS

    async def test_what_is_shown_late_was_not_changed_by_others(self, node):
        async with node.running():
            await node.until(1)
            node.shows = False
            node.renewer.set_subnets((NET4,), at_once=True)
            await node.until(1.1)
            node.renewer.ensure_current()
            await node.until(2)
            assert node.written_at == [0.0, 1.01]

    async def test_intact_ones_are_not(self, node):
        async with node.running():
            await node.until(1)
            node.renewer.ensure_current()
            node.store.leases.own = None
            node.renewer.ensure_current()
            await node.until(1.1)
            assert node.written_at == [0.0]

    async def test_nothing_is_mended_while_writes_fail(self, node):
        async with node.running():
            node.refuse()
            await node.until(5)
            node.store.leases.put(lease_object("n1", subnets=(NET4,)))
            node.renewer.ensure_current()
            await node.until(5.9)
            assert node.written_at == [0.0, 5.0]


class TestDuplicates:
    async def test_those_that_are_found_together_are_written_together(self, node):
        async with node.running():
            await node.until(1)
            node.renewer.list_duplicate(VIP4)
            await asyncio.sleep(0.2)
            node.renewer.list_duplicate(VIP6)
            await node.until(2)
            assert node.written_at == [0.0, 1.51]
            assert node.lease.duplicates == (VIP4, VIP6)
            assert node.lease.epoch == node.renewer.right.epoch
            assert len({lease.epoch for _at, lease in node.writes}) == 1


class TestMistakenAddresses:
    async def test_they_are_written_soon(self, node):
        said = (("n1", VIP4), ("n1", VIP6))
        async with node.running():
            await node.until(1)
            node.renewer.say(Said(mistaken=said))
            node.renewer.say(Said(mistaken=said))
            await node.until(2)
            assert node.written_at == [0.0, 1.51]
            assert node.lease.mistaken == said


class TestOutsidePools:
    async def test_what_no_pool_has_any_more_is_in_the_next_renewal(self, node):
        node.store.groups.put(group_object())
        node.store.services.put(service_object())
        async with node.running():
            await node.until(1)
            assert node.lease.outside == ""
            node.store.groups.drop(group_object())
            await node.until(6)
            assert node.written_at == [0.0, 5.0]
            assert node.lease.outside == f"{VIP4},local,default/web {VIP6},local,default/web"


class TestMail:
    async def test_it_is_written_at_once(self, node):
        async with node.running():
            await node.until(1)
            node.renewer.post("mail")
            await node.until(1.1)
            assert node.written_at == [0.0, 1.01]
            assert node.lease.mail == "mail"

    async def test_it_stands_there_until_it_is_taken_away(self, node):
        async with node.running():
            node.renewer.post("mail")
            await node.until(6)
            node.renewer.post("")
            await node.until(6.1)
            assert [lease.mail for _at, lease in node.writes] == ["", "mail", "mail", ""]

    async def test_the_same_is_not_written_again(self, node):
        async with node.running():
            node.renewer.post("")
            await node.until(1)
            assert node.written_at == [0.0]

    async def test_what_is_posted_during_a_write_is_written_after_it(self, node):
        async with node.running():
            node.api.hang("PUT", PATH)
            await node.until(5)
            node.renewer.post("mail")
            node.api.resume("PUT", PATH)
            await node.until(5.1)
            assert [lease.mail for _at, lease in node.writes] == ["", "", "mail"]


class TestSilentWatch:
    async def test_one_that_does_not_show_the_lease_restarts(self, node, logged):
        node.shows = False
        async with node.running():
            await node.until(1.4)
            assert node.watched_anew == []
            await node.until(4.9)
            assert node.watched_anew == [pytest.approx(node.began + 1.5)]
        assert logged.events.count("watchIsSilent") == 1

    async def test_it_restarts_after_each_renewal_that_is_not_shown(self, node):
        async with node.running():
            node.shows = False
            await node.until(7)
            assert node.watched_anew == [pytest.approx(node.began + 6.5)]

    async def test_one_that_shows_each_renewal_continues(self, node):
        async with node.running():
            await node.until(12)
            assert node.watched_anew == []

    async def test_one_that_shows_it_late_continues(self, node):
        node.shows = False
        async with node.running():
            await node.until(1)
            node.store.leases.put(node.api.sent("POST", COLLECTION)[0].body)
            await node.until(4)
            assert node.watched_anew == []


class TestDeletedLease:
    async def test_it_is_written_again_in_another_epoch(self, node):
        async with node.running():
            first = node.lease.epoch
            await node.until(1)
            node.api.answer("PUT", PATH, ApiError(404, "not found"), times=1)
            node.store.leases.own = None
            node.look()
            assert not node.renewer.right.may_add(clock.now())
            assert node.store.hold_deadline is not None
            await node.until(1.1)
            assert node.api.requests[-1].method == "POST"
            assert node.lease.epoch == node.renewer.right.epoch != first
            assert node.renewer.right.may_add(clock.now())

    async def test_one_that_was_not_shown_yet_is_not_deleted(self, node):
        node.shows = False
        async with node.running():
            node.look()
            await node.until(1)
            assert node.written_at == [0.0]
            assert not node.renewer.right.is_deleted


class TestLeave:
    async def test_it_ends_the_right_and_all_writes(self, node):
        async with node.running():
            node.refuse(times=1)
            await node.until(5)
            node.renewer.leave()
            assert node.renewer.right.state(clock.now()) is RightState.RELEASED
            assert node.store.hold_deadline is None
            assert not node.renewer.in_doubt.is_set()
            await node.until(30)
            assert node.written_at == [0.0, 5.0]

    @pytest.mark.parametrize("outcome", ["accepted", "refused"])
    async def test_the_end_of_a_write_under_way_changes_nothing(self, node, outcome):
        async with node.running():
            if outcome == "refused":
                node.refuse(times=1)
            node.api.hang("PUT", PATH)
            await node.until(5)
            node.renewer.leave()
            node.api.resume("PUT", PATH)
            await node.until(5.1)
            assert node.store.hold_deadline is None
            assert not node.renewer.in_doubt.is_set()
            assert node.metric("lease_renewals_total") == 1
            assert node.metric("lease_renewal_failures_total") == 0

    async def test_no_agreement_gives_it_back(self, node):
        async with node.running():
            node.renewer.leave()
            node.extend(HoldDeadline(clock.now() + 10, clock.now() + 13))
            assert node.store.hold_deadline is None

    async def test_the_lease_says_so_before_it_is_deleted(self, node):
        async with node.running():
            node.api.answer("GET", PATH, lease_object("n1"))
            node.renewer.leave()
            await node.renewer.delete()
            put, delete = node.api.requests[-2:]
            assert (put.method, put.body["spec"]["holderIdentity"]) == ("PUT", "")
            assert (delete.method, delete.path) == ("DELETE", PATH)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The reconcile loop with a fake kernel: its addresses, its deadlines, and what it passes on."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pytest

from purelb.core.election.election import rank
from purelb.core.model import InterfaceAddress, PoolType
from purelb.core.names import (
    ADDRESS_PROTOCOL,
    DRAINING_TAINTS,
    FENCED_PROTOCOL,
    OUR_PROTOCOLS,
)
from purelb.core.node.configuration import SelectorState
from purelb.core.node.left import Opened
from purelb_agent.node.netlink import News
from purelb_agent.node.reconcile import RESYNC
from purelb_agent.runtime import clock
from purelb_agent.runtime.netlink import NetlinkError
from tests.support.agent.kubernetes_objects import (
    config_object,
    group_object,
    lease_object,
    node_object,
    service_object,
)
from tests.support.agent.logs import Logged
from tests.support.agent.reconciled_node import TABLES, Node
from tests.support.core.snapshots import ETH0, NET4, NET6, OWN4, OWN6, VIP4, VIP6, on_eth0

ON_ETH0 = {(ETH0.index, VIP4), (ETH0.index, VIP6)}
EACH_VIP = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
REMOTE = PoolType.REMOTE


def held_vips(node):
    return [node.kernel.held[place] for place in node.held]


@pytest.fixture
def logged(caplog):
    return Logged(caplog)


async def settle():
    await asyncio.sleep(0.1)


@pytest.fixture
async def node():
    made = Node()
    task = asyncio.create_task(made.reconciler.run())
    yield made
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def serving(node):
    """A node that holds VIP4 and VIP6."""
    node.list_all()
    node.renew()
    await settle()
    assert node.held == ON_ETH0
    return node


class TestStart:
    async def test_nothing_is_read_before_everything_is_listed(self, node):
        for table in TABLES[:-1]:
            getattr(node.store, table).replace([], asked_at=clock.now())
        await asyncio.sleep(2 * RESYNC)
        assert node.kernel.calls == []
        assert node.metric("purelb_k8s_client_config_loaded_bool") == 0

    async def test_without_a_lease_only_the_subnets_are_passed_on(self, node):
        node.list_all()
        await settle()
        assert node.renewer.subnets[0][0] == (NET4, NET6)
        assert node.held == set()
        assert node.reporter.results == []
        assert node.metric("purelb_k8s_client_config_loaded_bool") == 1

    async def test_addresses_left_by_an_earlier_agent_stay_until_the_first_lease(self, serving):
        left = [held for place, held in serving.kernel.held.items() if place in ON_ETH0]
        later = Node()
        later.kernel.hold(*left)
        task = asyncio.create_task(later.reconciler.run())
        later.list_all(services=[])
        await settle()
        assert later.held == ON_ETH0
        later.renew()
        await settle()
        assert later.held == set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def test_what_a_right_left_that_has_ended_is_not_held(self, node):
        """Another node may have the addresses, and the fence is shut."""
        left = [replace(h, protocol=FENCED_PROTOCOL) for h in (on_eth0(VIP4), on_eth0(VIP6))]
        node.kernel.hold(*left)
        opened = []
        remove = node.kernel.remove

        def remove_and_look(held):
            opened.append(node.fence_kernel.control.opened)
            remove(held)

        node.kernel.remove = remove_and_look
        node.list_all()
        node.renew()
        await settle()
        assert opened == [Opened.NOT_YET] * 2
        assert node.questions.had[0] == frozenset()
        assert node.fence_kernel.control.opened is Opened.EVER_SINCE
        assert node.held == ON_ETH0

    async def test_what_was_just_added_counts_as_held(self, node):
        added = []
        put = node.kernel.put

        def put_and_look(wanted):
            put(wanted)
            asyncio.get_running_loop().call_soon(lambda: added.append(node.questions.held[-1]))

        node.kernel.put = put_and_look
        node.list_all()
        node.renew()
        await settle()
        assert added[0] != frozenset()

    async def test_without_a_lease_it_acts_when_what_was_left_has_ended(self, serving):
        later = Node()
        later.kernel.hold(*(h for place, h in serving.kernel.held.items() if place in ON_ETH0))
        task = asyncio.create_task(later.reconciler.run())
        later.list_all()
        await asyncio.sleep(10.9)
        assert later.held == ON_ETH0
        assert later.questions.held == []
        await asyncio.sleep(0.2)
        assert later.held == set()
        assert later.questions.held[-1] == frozenset()
        assert not later.reconciler.is_ready
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def test_a_node_is_not_ready_before_its_first_plan(self, node):
        assert not node.reconciler.is_ready
        node.list_all()
        await settle()
        assert not node.reconciler.is_ready

    async def test_a_node_is_ready_when_duplicate_address_detection_has_ended(self, serving):
        assert not serving.reconciler.is_ready
        for place, held in serving.kernel.held.items():
            serving.kernel.held[place] = replace(held, tentative=False)
        serving.kernel.notify(News())
        await settle()
        assert serving.reconciler.is_ready

    async def test_a_node_that_lost_its_lease_is_not_ready(self, serving):
        await asyncio.sleep(1)
        serving.store.set_hold_deadline(None)
        await asyncio.sleep(20)
        assert not serving.reconciler.is_ready


class TestMarks:
    @EACH_VIP
    async def test_an_address_that_lost_its_mark_is_left_alone_until_it_has_ended(
        self, serving, vip
    ):
        place = (ETH0.index, vip)
        changed = replace(serving.kernel.held[place], protocol=0)
        serving.kernel.hold(changed)
        serving.kernel.notify(News(changed))
        await asyncio.sleep(3)
        serving.renew()
        await settle()
        assert serving.kernel.held[place] == changed
        assert serving.reporter.results[-1] == (ON_ETH0 - {place}, True)
        del serving.kernel.held[place]
        serving.kernel.notify(News(changed, is_gone=True))
        await settle()
        assert serving.kernel.held[place].protocol in OUR_PROTOCOLS
        assert serving.reporter.results[-1] == (ON_ETH0, True)

    async def test_addresses_are_kept_and_withdrawn_by_a_kernel_without_marks(self, node):
        node.kernel.keeps_marks = False
        node.list_all()
        node.renew()
        await asyncio.sleep(3)
        node.renew()
        await settle()
        assert node.held == ON_ETH0
        assert all(held.expires_at > clock.now() + 8 for held in held_vips(node))
        node.store.services.replace([], asked_at=clock.now())
        node.store.groups.replace([], asked_at=clock.now())
        await settle()
        assert node.held == set()


class TestHolding:
    async def test_a_winner_adds_announces_and_reports_its_addresses(self, serving):
        # IPv6 is announced once duplicate address detection has ended.
        assert serving.announcer.usable[-1] == {(ETH0.index, VIP4)}
        assert serving.listener.checked == ON_ETH0
        assert serving.reporter.results[-1] == (ON_ETH0, True)

    async def test_lifetimes_end_before_the_lease(self, serving):
        ends_at = serving.store.hold_deadline.hold_until
        assert all(serving.kernel.held[place].expires_at < ends_at for place in ON_ETH0)

    async def test_a_renewed_lease_renews_the_lifetimes(self, serving):
        for _renewal in range(10):
            await asyncio.sleep(3)
            serving.renew()
        await settle()
        assert serving.held == ON_ETH0
        assert all(serving.kernel.held[place].expires_at > clock.now() for place in ON_ETH0)

    async def test_with_the_fence_a_renewal_changes_nothing(self, serving):
        """The addresses are refreshed together, about twice a minute."""
        serving.renew()
        await asyncio.sleep(1)
        marks = sorted(held.protocol for held in held_vips(serving))
        assert marks == [FENCED_PROTOCOL] * 2
        # The marks are new: it reads them once.
        serving.renew()
        await settle()
        serving.kernel.calls.clear()
        for _renewal in range(5):
            await asyncio.sleep(5)
            serving.renew()
        await settle()
        assert serving.kernel.calls == []
        for _renewal in range(24):
            await asyncio.sleep(5)
            serving.renew()
        assert serving.kernel.calls.count("put") == 2 * 5
        assert serving.held == ON_ETH0

    async def test_where_the_fence_has_a_gap_lifetimes_end_with_the_right(self, serving):
        hook = next(iter(serving.fence_kernel.attached))
        serving.fence_kernel.tcx[hook] = 1
        serving.fence_kernel.notify()
        await asyncio.sleep(2)
        ends_at = serving.store.hold_deadline.hold_until
        assert {held.protocol for held in held_vips(serving)} == {ADDRESS_PROTOCOL}
        assert all(held.expires_at < ends_at for held in held_vips(serving))
        serving.renew()
        await settle()
        assert all(held.expires_at > ends_at for held in held_vips(serving))
        del serving.fence_kernel.tcx[hook]
        serving.fence_kernel.notify()
        await asyncio.sleep(2)
        marks = sorted(held.protocol for held in held_vips(serving))
        assert marks == [FENCED_PROTOCOL] * 2

    async def test_an_address_that_is_gone_is_put_back(self, serving):
        serving.renew()
        await asyncio.sleep(1)
        gone = held_vips(serving)[0]
        del serving.kernel.held[gone.link, gone.address]
        serving.kernel.notify(News(gone, is_gone=True))
        serving.renew()
        await settle()
        assert serving.held == ON_ETH0

    async def test_addresses_are_withdrawn_at_the_hold_deadline(self, serving):
        deadline = serving.store.hold_deadline.announce_until
        await asyncio.sleep(deadline - clock.now() - 0.1)
        assert serving.held == ON_ETH0
        await asyncio.sleep(0.2)
        assert serving.held == set()

    async def test_addresses_are_withdrawn_when_the_lease_is_lost(self, serving):
        serving.store.set_hold_deadline(None)
        await settle()
        assert serving.held == set()

    @EACH_VIP
    async def test_an_address_is_withdrawn_when_its_service_is_deleted(self, serving, vip):
        serving.store.services.put(service_object(addresses=(vip,), version="2"))
        await settle()
        assert serving.held == {(ETH0.index, vip)}
        serving.store.services.drop(service_object())
        await settle()
        assert serving.held == set()

    async def test_addresses_are_withdrawn_while_a_taint_drains_the_node(self, serving):
        serving.store.nodes.put(node_object("n1", taints=DRAINING_TAINTS[:1]))
        await settle()
        assert serving.held == set()
        assert serving.metric("purelb_lbnodeagent_draining") == 1
        serving.store.nodes.put(node_object("n1"))
        await settle()
        assert serving.held == ON_ETH0

    async def test_only_one_of_two_nodes_holds_each_address(self, serving):
        serving.renew("n1", "n2", "n3", "n4", "n5", "n6")
        await settle()
        others = serving.metric("purelb_election_member_count")
        assert others == 6
        assert serving.held < ON_ETH0 or serving.held == set()


class TestMoves:
    async def leave_and_return(self, serving):
        """Let another node win the IPv6 address, and end; return whether it is detected then."""
        other = next(
            name
            for name in (f"n{number}" for number in range(2, 99))
            if rank(("n1", name), VIP6)[0] == name
        )
        serving.store.leases.put(lease_object(other))
        await settle()
        assert (ETH0.index, VIP6) not in serving.held
        serving.store.leases.drop(lease_object(other))
        await settle()
        return serving.kernel.held[ETH0.index, VIP6].tentative

    async def test_an_address_is_detected_the_first_time_only(self, serving):
        assert serving.kernel.held[ETH0.index, VIP6].tentative
        assert not await self.leave_and_return(serving)
        assert (ETH0.index, VIP6) in serving.announcer.fresh[-1]

    async def test_one_that_another_host_has_is_detected_again(self, serving):
        serving.store.leases.put(lease_object("n1", version="98"))
        serving.store.leases.put(lease_object("n1", version="99", duplicates=(VIP6,)))
        assert await self.leave_and_return(serving)

    async def test_one_whose_detection_failed_is_detected_again(self, serving):
        assert not await self.leave_and_return(serving)
        place = (ETH0.index, VIP6)
        serving.kernel.held[place] = replace(serving.kernel.held[place], dad_failed=True)
        serving.store.changed.notify()
        await settle()
        assert serving.kernel.held[place].tentative


class TestWakeUp:
    async def test_an_address_that_was_removed_is_put_back_at_once(self, serving):
        del serving.kernel.held[ETH0.index, VIP4]
        serving.kernel.notify(News())
        await settle()
        assert serving.held == ON_ETH0
        name = "purelb_lbnodeagent_address_watchdog_recoveries_total"
        assert serving.metric(name) == 1

    async def test_the_watchdog_reads_the_interfaces_without_news(self, node):
        node.list_all(services=[])
        node.renew(seconds=1000)
        await settle()
        assert await node.calls_of("addresses", seconds=10 * RESYNC) >= 10

    async def test_a_due_announcement_wakes_the_loop(self, serving):
        serving.renew(seconds=1000)
        await settle()
        cycles = len(serving.announcer.usable)
        serving.announcer.next_at = clock.now() + 0.25
        serving.store.changed.notify()
        await asyncio.sleep(0.2)
        assert len(serving.announcer.usable) == cycles + 1
        serving.announcer.next_at = None
        await settle()
        assert len(serving.announcer.usable) == cycles + 2

    async def test_what_the_watch_shows_of_the_own_lease_is_passed_on(self, serving):
        assert serving.renewer.own[-1] == serving.store.leases.own
        assert serving.renewer.own[-1].node == "n1"
        serving.store.leases.drop(lease_object("n1", version="999999"))
        await settle()
        assert serving.renewer.own[-1] is None

    async def test_a_cancelled_loop_leaves_the_addresses_in_place(self):
        node = Node()
        task = asyncio.create_task(node.reconciler.run())
        node.list_all()
        node.renew()
        await settle()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert node.held == ON_ETH0


@EACH_VIP
@pytest.mark.parametrize("was_claimed", [True, False])
async def test_an_address_that_no_other_host_has_is_announced_again(serving, vip, was_claimed):
    place = (ETH0.index, vip)
    serving.announcer.fresh.clear()
    serving.announcer.again.clear()
    serving.listener.settle({place: was_claimed})
    await settle()
    assert serving.announcer.fresh == [{place} if was_claimed else set()]
    assert serving.announcer.again == [{place: was_claimed}]
    assert serving.listener.settled == {}


class TestCarrier:
    def unplug(self, node, *, has_carrier):
        node.kernel.present[ETH0.index] = replace(ETH0, has_carrier=has_carrier)
        node.kernel.notify(News())

    async def test_a_lost_carrier_gives_the_addresses_up_after_2_s(self, serving):
        self.unplug(serving, has_carrier=False)
        await asyncio.sleep(1.9)
        assert serving.held == ON_ETH0
        await asyncio.sleep(0.2)
        assert serving.held == set()
        assert serving.renewer.subnets[-1] == ((), True)
        self.unplug(serving, has_carrier=True)
        await settle()
        assert serving.held == ON_ETH0

    async def test_a_flap_changes_nothing(self, serving):
        calls = serving.kernel.calls.count("remove")
        for has_carrier in (False, True) * 2:
            self.unplug(serving, has_carrier=has_carrier)
            await asyncio.sleep(1.5)
        assert serving.held == ON_ETH0
        assert serving.kernel.calls.count("remove") == calls


async def test_a_resume_lets_the_renewer_look_at_the_clock(serving):
    serving.kernel.notify(News())
    assert serving.renewer.looks == 0
    serving.kernel.notify(News(is_resume=True))
    assert serving.renewer.looks == 1


class TestRestored:
    async def test_hosts_are_told_again_when_frames_get_through_again(self, serving):
        for place, held in serving.kernel.held.items():
            serving.kernel.held[place] = replace(held, tentative=False)
        serving.announcer.fresh.clear()
        serving.kernel.notify(News(link=replace(ETH0, has_carrier=False)))
        await settle()
        assert serving.announcer.fresh == [ON_ETH0]
        serving.kernel.notify(News())
        await settle()
        assert serving.announcer.fresh == [ON_ETH0, set()]


class TestLostSegments:
    """As a DHCP client or a network manager does that begins again."""

    def lose(self, node, what):
        if what == "address":
            for own in (OWN4, OWN6):
                node.kernel.held.pop((own.link, own.address), None)
        else:
            node.kernel.present[ETH0.index] = replace(ETH0, default_metrics={})
        node.kernel.notify(News())

    def restore(self, node):
        node.kernel.present[ETH0.index] = ETH0
        node.kernel.hold(OWN4, OWN6)
        node.kernel.notify(News())

    @pytest.mark.parametrize("what", ["address", "default route"])
    async def test_a_short_loss_changes_nothing(self, serving, what):
        calls = serving.kernel.calls.count("remove")
        for _time in range(3):
            self.lose(serving, what)
            await asyncio.sleep(2.9)
            self.restore(serving)
            serving.renew()
            await settle()
        assert serving.held == ON_ETH0
        # The IPv4 address goes behind the own one each time.
        moves = 3 if what == "address" else 0
        assert serving.kernel.calls.count("remove") - calls == moves
        assert {subnets for subnets, _at_once in serving.renewer.subnets} == {(NET4, NET6)}

    @pytest.mark.parametrize("what", ["address", "default route"])
    async def test_a_long_one_gives_the_addresses_up(self, serving, what):
        self.lose(serving, what)
        await asyncio.sleep(3.1)
        assert serving.held == set()
        assert serving.renewer.subnets[-1] == ((), False)
        self.restore(serving)
        await settle()
        assert serving.held == ON_ETH0

    async def test_what_a_user_changes_is_in_force_at_once(self, serving):
        config = config_object(localInterface="none")
        serving.store.configs.replace([config], asked_at=clock.now())
        await settle()
        assert serving.held == set()
        assert serving.renewer.subnets[-1] == ((), True)

    async def test_an_expression_that_matches_more_than_meant_is_reported(self, serving):
        serving.kernel.present[8] = replace(ETH0, index=8, name="eth0.100")
        serving.kernel.notify(News())
        serving.store.configs.replace([config_object(localInterface="eth0")], asked_at=clock.now())
        await settle()
        assert serving.reporter.selected == ("eth0", "eth0.100")
        whole = config_object(localInterface="^eth0$")
        serving.store.configs.replace([whole], asked_at=clock.now())
        await settle()
        assert serving.reporter.selected == ()


class TestOtherNodes:
    async def test_the_lease_says_the_macs_and_who_answers(self, serving):
        assert serving.renewer.said.macs == (ETH0.mac,)
        serving.listener.answering = ("n2",)
        serving.store.changed.notify()
        await settle()
        assert serving.renewer.said.answering == ("n2",)

    async def test_who_they_are_is_known_by_their_macs(self, serving):
        mac = b"\2\0\0\0\0\x63"
        serving.store.leases.put(lease_object("n0", subnets=(), macs=(mac,)))
        await settle()
        assert serving.listener.nodes == {mac: "n0"}


class TestMistakenAddresses:
    """kubelet lists a VIP as an address of the node."""

    OWN = (str(OWN4.address), str(OWN6.address))

    async def lists(self, node, *addresses, name="n1"):
        node.store.nodes.put(node_object(name, *self.OWN, *map(str, addresses)))
        await settle()

    @EACH_VIP
    async def test_it_stays_where_it_is_and_the_lease_says_so(self, serving, vip):
        await self.lists(serving, vip)
        assert serving.held == ON_ETH0
        assert serving.renewer.said.mistaken == (("n1", vip),)
        assert serving.reporter.mistaken == {vip}
        assert serving.store.known_addresses == {OWN4.address, OWN6.address}
        await self.lists(serving)
        assert (serving.renewer.said.mistaken, serving.reporter.mistaken) == ((), frozenset())

    @EACH_VIP
    async def test_it_is_remembered_when_the_address_has_left(self, serving, vip):
        await self.lists(serving, vip)
        serving.store.services.drop(service_object())
        await settle()
        assert serving.held == set()
        assert serving.renewer.said.mistaken == (("n1", vip),)

    @EACH_VIP
    async def test_a_status_that_comes_after_the_address_has_left_is_as_wrong(self, serving, vip):
        serving.store.services.drop(service_object())
        await settle()
        await self.lists(serving, vip)
        assert serving.renewer.said.mistaken == (("n1", vip),)

    @EACH_VIP
    async def test_an_address_that_no_agent_put_is_the_nodes(self, node, vip):
        node.kernel.hold(InterfaceAddress(ETH0.index, vip, 24 if vip.version == 4 else 64))
        node.list_all()
        node.renew()
        await self.lists(node, vip)
        assert node.store.known_addresses == {OWN4.address, OWN6.address, vip}
        assert node.renewer.said.mistaken == ()
        assert (ETH0.index, vip) in node.kernel.held

    @EACH_VIP
    async def test_what_another_node_has_is_given_up_unless_its_lease_says_more(self, serving, vip):
        await self.lists(serving, vip, name="n0")
        assert serving.held == ON_ETH0 - {(ETH0.index, vip)}
        serving.store.leases.put(lease_object("n0", subnets=(), mistaken=(("n0", vip),)))
        await settle()
        assert serving.held == ON_ETH0

    @EACH_VIP
    async def test_an_agent_that_starts_knows_it_from_its_lease(self, node, vip):
        node.list_all()
        node.store.nodes.put(node_object("n1", *self.OWN, str(vip)))
        node.store.leases.put(lease_object("n1", mistaken=(("n1", vip),)))
        node.renew()
        await settle()
        assert node.held == ON_ETH0
        assert node.renewer.said.mistaken == (("n1", vip),)


class TestKernelErrors:
    async def test_a_refused_addition_is_retried_every_second(self, node):
        node.kernel.refuse("put", errno.EINVAL)
        node.list_all()
        node.renew(seconds=100)
        await settle()
        assert node.reporter.results[-1] == (frozenset(), False)
        assert await node.calls_of("put", seconds=5) == 10
        node.kernel.allow("put")
        await asyncio.sleep(1)
        assert node.held == ON_ETH0
        assert node.reporter.results[-1] == (ON_ETH0, True)

    async def test_a_refused_withdrawal_is_retried_every_second(self, serving):
        serving.kernel.refuse("remove", errno.EINVAL)
        serving.store.set_hold_deadline(None)
        await settle()
        assert serving.reporter.results[-1][1] is False
        assert await serving.calls_of("remove", seconds=3) == 6
        serving.kernel.allow("remove")
        await asyncio.sleep(1)
        assert serving.held == set()

    @pytest.mark.parametrize("method", ["addresses", "links"])
    async def test_interfaces_that_cannot_be_read_for_3_s_end_the_loop(self, method):
        node = Node()
        node.list_all()
        node.kernel.refuse(method, errno.ENOBUFS)
        began = clock.now()
        with pytest.raises(NetlinkError):
            await node.reconciler.run()
        assert clock.now() == pytest.approx(began + 3)

    @pytest.mark.parametrize("method", ["addresses", "links"])
    async def test_a_read_that_fails_for_a_while_changes_nothing(self, serving, method, logged):
        for _time in range(2):
            serving.kernel.refuse(method, errno.ENOBUFS)
            serving.kernel.notify(News())
            await asyncio.sleep(2.5)
            serving.kernel.allow(method)
            serving.renew()
            await asyncio.sleep(2)
        assert serving.held == ON_ETH0
        told = [event for event in logged.events if event.startswith("interfaces")]
        assert told == ["interfacesNotRead", "interfacesRead"] * 2

    @pytest.mark.parametrize("method", ["addresses", "links"])
    async def test_a_read_that_fails_past_the_hold_deadline_withdraws(self, serving, method):
        serving.kernel.refuse(method, errno.ENOBUFS)
        serving.store.set_hold_deadline(None)
        await settle()
        assert serving.held == set()
        serving.kernel.allow(method)
        serving.renew()
        await asyncio.sleep(2)
        assert serving.held == ON_ETH0


class TestDummyInterface:
    @pytest.fixture
    def remote(self, node):
        made = service_object(pool_type=REMOTE)
        node.list_all(groups=[group_object("remote")], services=[made])
        return node

    async def test_remote_addresses_stay_when_a_read_fails_past_the_hold_deadline(self, remote):
        remote.renew()
        await settle()
        before = remote.held
        assert before
        remote.kernel.refuse("addresses", errno.ENOBUFS)
        remote.store.set_hold_deadline(None)
        await settle()
        assert remote.held == before

    async def test_it_is_created_for_the_first_remote_address(self, remote):
        remote.renew()
        await settle()
        (dummy,) = [link for link in remote.kernel.present.values() if link.name == "kube-lb0"]
        assert remote.held == {(dummy.index, VIP4), (dummy.index, VIP6)}
        # No host is behind it.
        assert remote.announcer.usable[-1] == remote.listener.checked == frozenset()

    async def test_a_refused_creation_is_retried_every_second(self, remote):
        remote.kernel.refuse("add_dummy", errno.EPERM)
        remote.renew(seconds=100)
        await settle()
        assert await remote.calls_of("add_dummy", seconds=3) == 3
        assert remote.held == set()
        remote.kernel.allow("add_dummy")
        await asyncio.sleep(1)
        assert len(remote.held) == 2

    async def test_it_is_not_created_without_a_remote_address(self, serving):
        assert "add_dummy" not in serving.kernel.calls


class TestConfiguration:
    async def test_a_new_configuration_writes_its_subnets_at_once(self, serving):
        assert serving.renewer.subnets[-1] == ((NET4, NET6), False)
        serving.store.configs.put(config_object(localInterface="eth0"))
        await settle()
        assert ((NET4, NET6), True) in serving.renewer.subnets
        assert serving.reporter.choices == [SelectorState.CONFIGURED]
        assert serving.held == ON_ETH0

    async def test_a_configuration_without_this_nodes_interface_withdraws_its_addresses(
        self, serving
    ):
        serving.store.configs.put(config_object(localInterface="eth7"))
        await settle()
        assert serving.renewer.subnets[-1][0] == ()
        assert serving.held == set()

    @pytest.mark.parametrize(
        ("config", "state"),
        [
            (config_object(localInterface="("), SelectorState.INVALID),
            (
                {
                    **config_object(),
                    "spec": {"nodeSelector": {"matchLabels": {"rack": "1"}}, "local": {}},
                },
                SelectorState.DESELECTED,
            ),
        ],
        ids=["invalid", "deselected"],
    )
    async def test_a_node_without_a_usable_configuration_announces_nothing(
        self, serving, config, state
    ):
        serving.store.configs.put(config)
        await settle()
        assert serving.reporter.choices == [state]
        assert serving.held == set()
        assert serving.registry.get_sample_value(
            "purelb_lbnodeagent_selector_state", {"state": state.value}
        )

    async def test_the_same_configuration_is_reported_once(self, serving):
        for _cycle in range(3):
            serving.store.configs.put(config_object(localInterface="eth0"))
            serving.store.changed.notify()
            await settle()
        assert serving.reporter.choices == [SelectorState.CONFIGURED]


class TestLeaving:
    async def test_all_addresses_are_withdrawn_at_once(self, serving):
        serving.reconciler.withdraw_all()
        assert serving.held == set()

    async def test_later_cycles_add_none(self, serving):
        serving.reconciler.withdraw_all()
        serving.renew()
        await settle()
        assert serving.held == set()

    @pytest.mark.parametrize("method", ["addresses", "links"])
    async def test_what_it_added_goes_also_where_it_cannot_read(self, serving, method, logged):
        serving.kernel.refuse(method, errno.ENOBUFS)
        serving.reconciler.withdraw_all()
        assert serving.held == set()
        assert "interfacesNotRead" in logged.events

    async def test_the_dummy_interface_is_removed(self, node):
        made = service_object(pool_type=REMOTE)
        node.list_all(groups=[group_object("remote")], services=[made])
        node.renew()
        await settle()
        assert len(node.kernel.present) == 2
        node.reconciler.withdraw_all()
        assert list(node.kernel.present.values()) == [ETH0]

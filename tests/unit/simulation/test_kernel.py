# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The model of the kernel, as the agent's own client sees it."""

from __future__ import annotations

import asyncio
import errno
from functools import partial
from ipaddress import ip_address

import pytest

from purelb.core.model import InterfaceAddress
from purelb.core.names import ADDRESS_PROTOCOL, LINK_ALIAS
from purelb.core.node import rtnetlink
from purelb.core.node.plan import Put
from purelb_agent.node.netlink import Kernel as KernelClient
from purelb_agent.node.netlink import News
from purelb_agent.runtime import clock
from purelb_agent.runtime.netlink import NetlinkError
from simulation.chance import stream
from simulation.node.kernel import Kernel
from simulation.node.messages import LinkState, Route
from simulation.node.netlink import ModelResumes, Stop
from simulation.time.timeline import MICROSECONDS

V4, V6 = ip_address("172.28.1.220"), ip_address("fd28::220")
OWN = ip_address("172.28.1.11")
ETH0 = LinkState(2, "eth0", b"\x02\0\0\0\0\1")
BOTH = pytest.mark.parametrize("vip", [V4, V6], ids=["v4", "v6"])


class Node:
    """A kernel, and a program that does what a test says with the agent's client of it."""

    def __init__(self, timeline, machine, process):
        self.timeline, self.process = timeline, process
        self.kernel = Kernel(machine, stream(1, "kernel"))
        self.kernel.add_link(ETH0)
        self.kernel.add_route(Route(2, 100, ip_address("172.28.1.1")))
        self.kernel.add_address(2, OWN, 24)
        self.news, self.places = [], []
        self.kernel.changed = lambda place: self.places.append((timeline.now, place[1]))

    def do(self, *steps, seconds=3600):
        """Call each step with the client, then wait; return what each returned."""
        results = []

        async def program():
            client = KernelClient(
                open_socket=partial(self.kernel.open_socket, self.process),
                open_resumes=partial(ModelResumes, self.process),
            )
            client.subscribe(self.news.append)
            for step in steps:
                if isinstance(step, (int, float)):
                    await asyncio.sleep(step)
                else:
                    results.append(step(client))
            # It keeps its sockets for the news.
            await asyncio.Event().wait()

        self.process.start(program())
        self.timeline.run(self.timeline.now + seconds * MICROSECONDS)
        if self.process.error:
            raise self.process.error
        return results

    def times(self, vip):
        """Seconds at which the address came, became usable or went."""
        return [moment / MICROSECONDS for moment, address in self.places if address == vip]


@pytest.fixture
def node(timeline, machine, process):
    return Node(timeline, machine, process)


def put(vip, seconds=10, *, is_new=True, no_dad=True, preferred=None):
    length = 24 if vip.version == 4 else 64
    preferred = seconds if preferred is None else preferred
    made = Put(
        2, vip, length, seconds, preferred, no_prefix_route=True, no_dad=no_dad, is_new=is_new
    )
    return lambda client: client.put(made)


def addresses(client):
    now = clock.now()
    return {
        held.address: (held.link, held.expires_at and round(held.expires_at - now, 3))
        for held in client.addresses()
    }


def held(vip, client):
    return next((found for found in client.addresses() if found.address == vip), None)


def test_links_have_their_default_routes(node):
    ((link,),) = node.do(lambda client: client.links())
    assert (link.name, link.index, link.mac, link.is_up) == ("eth0", 2, ETH0.mac, True)
    assert link.default_metrics == {4: 100}
    assert link.gateways == {ip_address("172.28.1.1")}


@BOTH
class TestLifetimes:
    def test_an_address_goes_up_to_a_second_after_its_end(self, node, vip):
        (_none, seen, *_later) = node.do(put(vip), addresses, 9.9, addresses, 1.2, addresses)
        assert seen == {OWN: (2, None), vip: (2, 10.0)}
        came, went = node.times(vip)
        assert came == 0
        assert 10 <= went <= 11

    def test_what_is_left_is_rounded_up(self, node, vip):
        (*_put, seen) = node.do(put(vip), 0.5, addresses)
        assert seen[vip] == (2, 10.0)

    def test_a_refresh_lets_it_stay(self, node, vip):
        refreshes = [step for _ in range(20) for step in (5, put(vip, is_new=False))]
        node.do(put(vip), *refreshes)
        came, went = node.times(vip)
        assert came == 0
        assert 110 <= went <= 111

    def test_a_refresh_may_shorten_it(self, node, vip):
        node.do(put(vip, 40), 5, put(vip, is_new=False))
        came, went = node.times(vip)
        assert came == 0
        assert 15 <= went <= 16

    def test_one_that_comes_again_ends_once(self, node, vip):
        def remove(client):
            client.remove(held(vip, client))

        node.do(put(vip), 1, remove, 1, put(vip))
        first, removed, again, went = node.times(vip)
        assert (first, removed, again) == (0, 1, 2)
        assert 12 <= went <= 13

    def test_without_an_end_it_stays(self, node, vip):
        made = Put(2, vip, 32, None, None, no_prefix_route=True, no_dad=True, is_new=True)
        node.do(lambda client: client.put(made))
        assert node.times(vip) == [0]

    def test_news_tell_of_each_change(self, node, vip):
        node.do(put(vip), 5, put(vip, is_new=False))
        assert [(n.address.address, n.is_gone) for n in node.news] == [
            (vip, False),
            (vip, False),
            (vip, True),
        ]
        assert node.news[0].address.protocol == ADDRESS_PROTOCOL

    def test_its_preferred_lifetime_may_end_first(self, node, vip):
        seen = node.do(
            put(vip, preferred=4), partial(held, vip), 4.1, partial(held, vip), 0.1, addresses
        )
        assert [found.deprecated for found in (seen[1], seen[2])] == [False, True]
        assert [news.address.deprecated for news in node.news] == [False, True, True]

    def test_it_may_never_be_preferred(self, node, vip):
        (_put, seen) = node.do(put(vip, preferred=0), partial(held, vip))
        assert seen.deprecated


class TestDuplicateAddressDetection:
    def test_takes_one_to_two_seconds(self, node):
        seen = node.do(put(V6, no_dad=False), partial(held, V6), 2.1, partial(held, V6))
        assert [found.tentative for found in seen[1:]] == [True, False]
        came, usable, _went = node.times(V6)
        assert came == 0
        assert 1 <= usable <= 2

    def test_removes_what_another_host_has(self, node):
        node.kernel.is_taken = lambda _link, address: address == V6
        node.do(put(V6, no_dad=False), put(V4, no_dad=False))
        _came, went = node.times(V6)
        assert 1 <= went <= 2
        assert node.news[-2].is_gone is node.news[-1].is_gone is True
        assert len(node.times(V4)) == 2

    def test_only_what_is_not_tentative_is_answered_for(self, node):
        node.do(put(V6, no_dad=False, seconds=300), seconds=1)
        assert node.kernel.usable(V6) is None
        node.timeline.run(10 * MICROSECONDS)
        assert node.kernel.usable(V6) is ETH0
        assert node.kernel.usable(ip_address("172.28.1.9")) is None


class TestRefusals:
    def refused(self, node, *steps):
        with pytest.raises(NetlinkError) as error:
            node.do(*steps)
        return error.value.errno

    @BOTH
    def test_of_a_new_address_that_is_there(self, node, vip):
        assert self.refused(node, put(vip), put(vip)) == errno.EEXIST

    def test_of_an_interface_that_is_not(self, node):
        made = Put(9, V4, 24, 9, 9, no_prefix_route=True, no_dad=True, is_new=True)
        assert self.refused(node, lambda client: client.put(made)) == errno.ENODEV

    @BOTH
    def test_a_removal_of_what_is_gone_is_none(self, node, vip):
        def remove_twice(client):
            found = held(vip, client)
            client.remove(found)
            client.remove(found)

        node.do(put(vip), remove_twice)
        assert len(node.times(vip)) == 2


def test_a_dummy_is_made_named_and_removed_with_its_addresses(node):
    def put_there(client):
        link = next(link for link in client.links() if link.name == "kube-lb0")
        assert link.alias == LINK_ALIAS
        client.put(
            Put(link.index, V4, 32, None, None, no_prefix_route=True, no_dad=True, is_new=True)
        )
        return link

    def remove(client):
        client.remove_link(next(link for link in client.links() if link.name == "kube-lb0"))

    node.do(
        lambda client: client.add_dummy("kube-lb0"),
        lambda client: client.add_dummy("kube-lb0"),
        put_there,
        remove,
    )
    assert [link.name for link in node.kernel.links.values()] == ["eth0"]
    assert len(node.times(V4)) == 2


def test_lifetimes_follow_the_clock_of_the_machine(node, machine):
    machine.monotonic.set_rate(0.5)
    node.do(put(V4))
    _came, went = node.times(V4)
    assert 20 <= went <= 22


@BOTH
@pytest.mark.parametrize("stop", ["pause", "suspend"])
def test_lifetimes_stand_while_the_machine_does_not_run(node, timeline, machine, vip, stop):
    timeline.after(5, getattr(machine, stop))
    timeline.after(17, machine.resume)
    node.do(put(vip))
    came, went = node.times(vip)
    assert came == 0
    assert 22 <= went <= 23


def test_a_machine_that_does_not_run_has_its_addresses_and_answers_no_host(node, machine):
    node.do(put(V4), seconds=1)
    machine.pause()
    assert (2, V4) in node.kernel.held
    assert node.kernel.usable(V4) is None
    machine.resume()
    assert node.kernel.usable(V4) is ETH0


class TestOrder:
    def test_new_ones_are_last_of_ipv4_and_first_of_ipv6(self, node):
        found = node.do(*(put(vip) for vip in (V4, V6, V4 + 1, V6 + 1)), addresses)[-1]
        assert list(found) == [OWN, V4, V4 + 1, V6 + 1, V6]

    @pytest.mark.parametrize("promotes", [False, True])
    def test_the_client_removes_no_other(self, node, promotes):
        node.kernel.links[2].promotes = promotes

        def remove(client):
            client.remove(held(OWN, client))

        found = node.do(put(V4), put(V4 + 1), remove, addresses)[-1]
        assert list(found) == [V4, V4 + 1]
        assert node.kernel.links[2].promotes is promotes

    def test_settings_of_no_interface_are_refused(self, node):
        def ask(client):
            client.remove(InterfaceAddress(99, V4, 24))

        node.do(ask)
        for build in (rtnetlink.build_get_link, partial(rtnetlink.build_promote, on=True)):
            (request,) = rtnetlink.parse_messages(build(99, 7))
            (reply,) = rtnetlink.parse_messages(node.kernel.answer(request))
            assert rtnetlink.parse_error(reply) == errno.ENODEV


class TestInterruptedDumps:
    def dumps(self, node, count):
        """Return what so many dumps have, and whether each says that it was interrupted."""
        node.do(put(V4), put(V6), seconds=1)
        (request,) = rtnetlink.parse_messages(rtnetlink.build_dump(rtnetlink.RTM_GETADDR, 1))
        replies = [
            rtnetlink.read_reply(lambda: node.kernel.answer(request), 1) for _dump in range(count)
        ]
        return [
            (r.was_interrupted, {rtnetlink.parse_address(m).address for m in r.messages})
            for r in replies
        ]

    @pytest.mark.parametrize("lacks", [OWN, V4, V6])
    def test_lack_an_address_and_say_so(self, node, lacks):
        node.kernel.interrupted_dumps, node.kernel.dumps_lack = 2, lacks
        every = {OWN, V4, V6}
        assert self.dumps(node, 3) == [
            (True, every - {lacks}),
            (True, every - {lacks}),
            (False, every),
        ]

    def test_lack_what_chance_decides(self, node):
        node.kernel.interrupted_dumps = 30
        lacking = [{OWN, V4, V6} - found for _interrupted, found in self.dumps(node, 30)]
        assert {len(addresses) for addresses in lacking} == {1}
        assert set().union(*lacking) == {OWN, V4, V6}

    def test_of_interfaces_are_whole(self, node):
        node.kernel.interrupted_dumps = 1
        ((link,),) = node.do(lambda client: client.links())
        assert link.name == "eth0"
        assert node.kernel.interrupted_dumps == 1


def test_news_without_room_are_lost_and_the_agent_learns_that(node):
    node.kernel.lost_news = 2
    node.do(put(V4), put(V6), 1, put(V6, is_new=False), seconds=5)
    assert [news.address and news.address.address for news in node.news] == [None, V6]


class TestStop:
    def moments(self, node, stop):
        node.kernel.stop = stop
        node.do(put(V4, 300), put(V6, 300), lambda client: held(V4, client), seconds=100)
        return node.times(V4) + node.times(V6)

    def test_a_process_stands_still_after_a_request(self, node):
        assert self.moments(node, Stop(1, rtnetlink.RTM_NEWADDR, 30)) == [0, 30]
        assert node.kernel.stop is None

    def test_it_counts_requests_of_its_kind(self, node):
        assert self.moments(node, Stop(2, rtnetlink.RTM_NEWADDR, 30)) == [0, 0]
        assert node.kernel.stop is None

    def test_it_waits_for_its_request(self, node):
        assert self.moments(node, Stop(2, rtnetlink.RTM_GETADDR, 30)) == [0, 0]
        assert node.kernel.stop == Stop(1, rtnetlink.RTM_GETADDR, 30)


def test_a_busy_kernel_takes_its_time_for_each_request(node):
    node.kernel.busy = 0.5
    node.do(put(V4), put(V6), seconds=5)
    assert node.times(V4) == [0]
    assert node.times(V6) == [0.5]


@pytest.mark.parametrize("stops", ["suspend", "pause"])
def test_news_come_after_a_sleep_and_not_after_a_pause(node, timeline, stops):
    node.do(seconds=1)
    for _time in range(2):
        getattr(node.kernel.machine, stops)()
        timeline.run(timeline.now + 5 * MICROSECONDS)
        assert node.news == []
        node.kernel.machine.resume()
        timeline.run(timeline.now + MICROSECONDS)
        assert node.news == ([News(is_resume=True)] if stops == "suspend" else [])
        node.news.clear()

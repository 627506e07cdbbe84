# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The kernel's replies and notifications made up; test_netlink_kernel.py asks the real one."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import struct

import pytest

from purelb.core.model import InterfaceAddress, Link
from purelb.core.node import rtnetlink
from purelb.core.node.plan import Put
from purelb_agent.node.netlink import Kernel, News
from purelb_agent.runtime import clock
from purelb_agent.runtime.netlink import NetlinkError, NoAnswerError
from tests.support.core.snapshots import VIP4, VIP6

BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
REFUSALS = pytest.mark.parametrize(
    "code",
    [errno.EPERM, errno.ENOBUFS, errno.EINVAL, errno.EOPNOTSUPP],
    ids=errno.errorcode.__getitem__,
)
NLMSG_DONE = (rtnetlink.NLMSG_DONE, bytes(4))
ACK = (rtnetlink.NLMSG_ERROR, bytes(20))


def error(code):
    return rtnetlink.NLMSG_ERROR, struct.pack("=i", -code) + bytes(16)


def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def address(vip, *, kind=rtnetlink.RTM_NEWADDR, link=2):
    family = rtnetlink.AF_INET if vip.version == 4 else rtnetlink.AF_INET6
    return kind, struct.pack("=BBBBI", family, 24, 0, 0, link) + attribute(1, vip.packed)


def link(index, name):
    head = struct.pack("=BxHiII", 0, 1, index, 1, 0)
    return rtnetlink.RTM_NEWLINK, head + attribute(3, name.encode() + b"\0")


def route(index, metric, *, family=2, prefixlen=0, kind=rtnetlink.RTM_NEWROUTE):
    head = struct.pack("=BBBBBBBBI", family, prefixlen, 0, 0, 254, 0, 0, 0, 0)
    attributes = attribute(4, struct.pack("=I", index)) + attribute(6, struct.pack("=I", metric))
    return kind, head + attributes


def datagram(*messages, sequence=0, flags=0):
    return b"".join(
        struct.pack("=IHHII", 16 + len(body), kind, flags, sequence, 0) + body
        for kind, body in messages
    )


class Requests:
    """The socket for requests: records them, and replies with what was prepared.

    A reply is a list of datagrams, each a tuple of messages; a callable makes one of the sequence
    number, an exception is raised.
    """

    def __init__(self):
        self.sent = []
        self.closed = False
        self._replies = []
        self._pending = []

    def reply(self, *datagrams):
        self._replies.append(list(datagrams))

    def settimeout(self, seconds):
        assert 0 < seconds < 5

    def send(self, data):
        (message,) = rtnetlink.parse_messages(data)
        self.sent.append(message)
        self._pending += self._replies.pop(0)

    def recv(self, _size):
        if not self._pending:
            raise TimeoutError("timed out")
        prepared = self._pending.pop(0)
        if isinstance(prepared, OSError):
            raise prepared
        sequence = self.sent[-1].sequence
        if callable(prepared):
            return prepared(sequence)
        return datagram(*prepared, sequence=sequence)

    def close(self):
        self.closed = True


class Notifications:
    """The socket for notifications: one end of a pair, with errors in between."""

    def __init__(self):
        self._end, self._kernel = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._errors = []

    def setblocking(self, flag):
        self._end.setblocking(flag)

    def fileno(self):
        return self._end.fileno()

    def notify(self, *messages, cut=0):
        data = datagram(*messages)
        self._kernel.send(data[: len(data) - cut])

    def overrun(self):
        self._errors.append(OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS)))
        self._kernel.send(b"-")

    def recv(self, size):
        data = self._end.recv(size)
        if data == b"-":
            raise self._errors.pop()
        return data

    def close(self):
        self._end.close()
        self._kernel.close()


class ResumesByHand:
    """Reports a resume when the test says so."""

    def __init__(self):
        self._end, self._kernel = socket.socketpair()
        self.closed = False

    def resume(self):
        self._kernel.send(b"-")

    def fileno(self):
        return self._end.fileno()

    def read(self):
        self._end.recv(1)

    def close(self):
        self.closed = True
        self._end.close()
        self._kernel.close()


@pytest.fixture
def resumes():
    made = ResumesByHand()
    yield made
    made.close()


@pytest.fixture
def requests():
    return Requests()


@pytest.fixture
def notifications():
    made = Notifications()
    yield made
    made.close()


@pytest.fixture
async def kernel(requests, notifications, resumes):
    made = Kernel(
        open_socket=lambda groups: notifications if groups else requests,
        open_resumes=lambda: resumes,
    )
    yield made
    made.close()
    assert requests.closed


def put_of(vip):
    return Put(2, vip, 24, 9, 9, no_prefix_route=True, no_dad=True, is_new=True)


class TestDumps:
    @BOTH
    async def test_addresses_come_from_all_datagrams_of_a_dump(self, kernel, requests, vip):
        requests.reply((address(vip), address(vip + 1)), (address(vip + 2, link=3),), (NLMSG_DONE,))
        found = kernel.addresses()
        assert [(held.link, held.address) for held in found] == [
            (2, vip),
            (2, vip + 1),
            (3, vip + 2),
        ]
        assert requests.sent[0].kind == rtnetlink.RTM_GETADDR

    async def test_addresses_of_other_families_are_left_out(self, kernel, requests):
        other = rtnetlink.RTM_NEWADDR, struct.pack("=BBBBI", 45, 0, 0, 0, 2) + attribute(2, b"\1")
        requests.reply((other, address(VIP4), NLMSG_DONE))
        assert [held.address for held in kernel.addresses()] == [VIP4]

    async def test_lifetimes_count_from_the_request(self, kernel, requests, virtual_clock):
        kind, body = address(VIP4)
        body += attribute(6, struct.pack("=IIII", 5, 9, 0, 0))
        now = clock.now()
        requests.reply(((kind, body), NLMSG_DONE))
        (held,) = kernel.addresses()
        assert (held.preferred_until, held.expires_at) == (now + 5, now + 9)

    async def test_links_have_the_lowest_metrics_of_their_default_routes(self, kernel, requests):
        routes = [route(2, 200), route(2, 100), route(2, 1024, family=10), route(3, 7, prefixlen=8)]
        requests.reply((*routes, NLMSG_DONE))
        requests.reply((link(2, "eth0"), link(3, "eth1"), NLMSG_DONE))
        assert kernel.links() == (
            Link(2, "eth0", default_metrics={4: 100, 6: 1024}),
            Link(3, "eth1"),
        )

    @REFUSALS
    @pytest.mark.parametrize("read", [Kernel.addresses, Kernel.links])
    async def test_a_refused_dump_is_raised(self, kernel, requests, read, code):
        requests.reply((error(code),))
        with pytest.raises(NetlinkError) as raised:
            read(kernel)
        assert (raised.value.errno, raised.value.strerror) == (code, os.strerror(code))

    @pytest.mark.parametrize(("times", "is_read"), [(1, True), (4, True), (5, False)])
    async def test_an_interrupted_dump_is_repeated_a_few_times(
        self, kernel, requests, times, is_read
    ):
        def interrupted(sequence):
            return datagram(NLMSG_DONE, sequence=sequence, flags=rtnetlink.NLM_F_DUMP_INTR)

        for _time in range(times):
            requests.reply(interrupted)
        requests.reply((address(VIP4), NLMSG_DONE))
        if is_read:
            assert [held.address for held in kernel.addresses()] == [VIP4]
        else:
            with pytest.raises(NetlinkError, match="interrupted"):
                kernel.addresses()

    async def test_a_lost_reply_is_raised(self, kernel, requests):
        requests.reply(OSError(errno.ENOBUFS, "No buffer space available"))
        with pytest.raises(NoAnswerError, match="No buffer space"):
            kernel.addresses()

    async def test_a_truncated_reply_ends_with_the_timeout(self, kernel, requests):
        requests.reply(lambda sequence: datagram(address(VIP4), NLMSG_DONE, sequence=sequence)[:-1])
        with pytest.raises(NoAnswerError, match="timed out"):
            kernel.addresses()

    async def test_the_late_reply_to_a_request_that_timed_out_is_ignored(self, kernel, requests):
        requests.reply()
        with pytest.raises(NoAnswerError, match="timed out"):
            kernel.addresses()
        late = datagram(address(VIP6), NLMSG_DONE, sequence=requests.sent[-1].sequence)
        requests.reply(lambda _sequence: late, (address(VIP4), NLMSG_DONE))
        assert [held.address for held in kernel.addresses()] == [VIP4]


@BOTH
class TestChanges:
    async def test_an_address_is_put(self, kernel, requests, vip):
        requests.reply((ACK,))
        kernel.put(put_of(vip))
        (message,) = requests.sent
        assert message.kind == rtnetlink.RTM_NEWADDR
        assert rtnetlink.parse_address(message).address == vip

    @pytest.mark.parametrize("code", [errno.ENODEV, errno.EEXIST, errno.EPERM, errno.ENOBUFS])
    async def test_a_refused_put_is_raised(self, kernel, requests, vip, code):
        requests.reply((error(code),))
        with pytest.raises(NetlinkError) as raised:
            kernel.put(put_of(vip))
        assert raised.value.errno == code

    async def test_an_address_is_removed(self, kernel, requests, vip):
        requests.reply((ACK,))
        kernel.remove(InterfaceAddress(2, vip, vip.max_prefixlen))
        (message,) = requests.sent
        assert message.kind == rtnetlink.RTM_DELADDR
        assert rtnetlink.parse_address(message).address == vip

    @pytest.mark.parametrize("code", [errno.ENODEV, errno.EADDRNOTAVAIL])
    async def test_removing_an_address_that_is_gone_succeeds(self, kernel, requests, vip, code):
        requests.reply((error(code),))
        kernel.remove(InterfaceAddress(2, vip, vip.max_prefixlen))

    @REFUSALS
    async def test_a_refused_removal_is_raised(self, kernel, requests, vip, code):
        requests.reply((error(code),))
        with pytest.raises(NetlinkError) as raised:
            kernel.remove(InterfaceAddress(2, vip, vip.max_prefixlen))
        assert raised.value.errno == code


class TestDummies:
    async def test_a_new_dummy_gets_the_alias(self, kernel, requests):
        requests.reply((ACK,))
        requests.reply((ACK,))
        kernel.add_dummy("kube-lb0")
        made, named = map(rtnetlink.parse_link, requests.sent)
        assert (made.name, made.is_up, made.alias) == ("kube-lb0", True, "")
        assert (named.name, named.alias) == ("kube-lb0", "purelb")

    async def test_an_existing_link_stays_as_it_is(self, kernel, requests):
        requests.reply((error(errno.EEXIST),))
        kernel.add_dummy("kube-lb0")
        assert len(requests.sent) == 1

    @REFUSALS
    async def test_a_refused_dummy_is_raised(self, kernel, requests, code):
        requests.reply((error(code),))
        with pytest.raises(NetlinkError):
            kernel.add_dummy("kube-lb0")

    async def test_a_refused_alias_is_raised(self, kernel, requests):
        requests.reply((ACK,))
        requests.reply((error(errno.ENODEV),))
        with pytest.raises(NetlinkError):
            kernel.add_dummy("kube-lb0")

    async def test_a_link_is_removed(self, kernel, requests):
        requests.reply((ACK,))
        kernel.remove_link(Link(7, "kube-lb0"))
        (message,) = requests.sent
        assert message.kind == rtnetlink.RTM_DELLINK
        assert struct.unpack_from("=BxHi", message.body)[2] == 7

    async def test_removing_a_link_that_is_gone_succeeds(self, kernel, requests):
        requests.reply((error(errno.ENODEV),))
        kernel.remove_link(Link(7, "kube-lb0"))

    async def test_a_refused_removal_of_a_link_is_raised(self, kernel, requests):
        requests.reply((error(errno.EPERM),))
        with pytest.raises(NetlinkError):
            kernel.remove_link(Link(7, "kube-lb0"))


class TestNotifications:
    @pytest.fixture
    async def received(self, kernel):
        """Everything that the subscriber has received when the loop has run."""
        news = []
        kernel.subscribe(news.append)

        async def received():
            await asyncio.sleep(0.01)
            return news

        return received

    @BOTH
    async def test_a_new_and_a_removed_address(self, received, notifications, vip):
        notifications.notify(address(vip))
        notifications.notify(address(vip, kind=rtnetlink.RTM_DELADDR))
        held = InterfaceAddress(2, vip, 24)
        assert await received() == [News(held), News(held, is_gone=True)]

    async def test_all_messages_of_a_datagram(self, received, notifications):
        notifications.notify(address(VIP4), link(2, "eth0"), address(VIP6))
        assert [bool(news.address) for news in await received()] == [True, False, True]

    @pytest.mark.parametrize("kind", [rtnetlink.RTM_NEWROUTE, rtnetlink.RTM_DELROUTE])
    async def test_a_default_route_and_no_other(self, received, notifications, kind):
        notifications.notify(route(2, 100, prefixlen=24, kind=kind), route(2, 100, kind=kind))
        assert await received() == [News()]

    async def test_lost_notifications_are_news_and_later_ones_are_read(
        self, received, notifications
    ):
        notifications.overrun()
        notifications.notify(address(VIP4))
        lost, later = await received()
        assert lost == News()
        assert later.address.address == VIP4

    async def test_a_truncated_notification_is_ignored_and_later_ones_are_read(
        self, received, notifications
    ):
        notifications.notify(address(VIP4), cut=1)
        notifications.notify(address(VIP6))
        assert [news.address.address for news in await received()] == [VIP6]

    async def test_each_resume_is_news(self, received, resumes):
        for number in range(1, 3):
            resumes.resume()
            assert await received() == [News(is_resume=True)] * number

    async def test_the_source_of_resumes_is_closed(self, requests, notifications, resumes):
        made = Kernel(
            open_socket=lambda groups: notifications if groups else requests,
            open_resumes=lambda: resumes,
        )
        made.subscribe(lambda _news: None)
        made.close()
        assert resumes.closed

    async def test_nothing_without_a_notification(self, received):
        assert await received() == []

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import errno
import os
from dataclasses import replace

import pytest
from prometheus_client import CollectorRegistry

from purelb.core.model import InterfaceAddress, Link, Reason
from purelb.core.names import ADDRESS_PROTOCOL, LINK_ALIAS
from purelb.core.node.plan import Plan, Put, Remove
from purelb_agent.node.interfaces import Interfaces
from purelb_agent.node.metrics import NodeMetrics
from purelb_agent.node.netlink import News
from purelb_agent.runtime import clock
from purelb_agent.runtime.netlink import NetlinkError, NoAnswerError
from purelb_agent.runtime.wakeup import Wakeup
from tests.support.agent.fake_kernel import FakeKernel
from tests.support.agent.logs import Logged
from tests.support.core.snapshots import DUMMY, ETH0, OWN4, OWN6, VIP4, VIP6

BOTH = pytest.mark.parametrize("vip", [VIP4, VIP6], ids=["v4", "v6"])
# What the kernel refuses a change with: no such device, no permission, no memory, no such address.
REFUSALS = pytest.mark.parametrize(
    "code",
    [errno.ENODEV, errno.EPERM, errno.ENOBUFS, errno.EADDRNOTAVAIL],
    ids=errno.errorcode.__getitem__,
)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def logged(caplog):
    return Logged(caplog)


@pytest.fixture
def kernel():
    return FakeKernel(ETH0, DUMMY)


@pytest.fixture
def interfaces(kernel, registry):
    made = Interfaces(kernel, NodeMetrics(registry).addresses)
    made.read_links(0.0, max_age=30.0)
    return made


@pytest.fixture
def count(registry):
    return lambda name: registry.get_sample_value(f"purelb_lbnodeagent_address_{name}")


def held_at(vip, **changes):
    return InterfaceAddress(2, vip, 24 if vip.version == 4 else 64, **changes)


def put_of(vip, *, is_new=True, link=2, no_dad=True, ends_by=None):
    prefixlen = 24 if vip.version == 4 else 64
    values = {"no_prefix_route": True, "no_dad": no_dad, "is_new": is_new, "ends_by": ends_by}
    return Put(link, vip, prefixlen, 9, 9, **values)


def plan_of(*puts, removes=(), wanted=None):
    places = {(put.link, put.address) for put in puts} if wanted is None else wanted
    return Plan(tuple(removes), puts, frozenset(places), None)


class TestReadingLinks:
    def reads(self, kernel):
        return kernel.calls.count("links")

    def test_links_are_read_at_first(self, interfaces):
        assert interfaces.links == (ETH0, DUMMY)

    def test_links_are_read_again_when_they_are_old(self, interfaces, kernel):
        interfaces.read_links(29.9, max_age=30.0)
        assert self.reads(kernel) == 1
        interfaces.read_links(30.0, max_age=30.0)
        assert self.reads(kernel) == 2

    def test_links_are_read_again_after_a_change(self, interfaces, kernel):
        interfaces.subscribe(lambda: None, lambda: None)
        kernel.notify(News())
        interfaces.read_links(1.0, max_age=30.0)
        assert self.reads(kernel) == 2

    def test_links_are_read_again_after_a_new_dummy(self, interfaces, kernel):
        assert interfaces.make_dummy("kube-lb1")
        interfaces.read_links(1.0, max_age=30.0)
        assert [link.name for link in interfaces.links] == ["eth0", "kube-lb0", "kube-lb1"]

    def test_a_link_that_has_its_carrier_again_is_restored_once(self, interfaces, kernel):
        for has_carrier, restored in ((False, set()), (True, {ETH0.index}), (True, set())):
            kernel.present[ETH0.index] = replace(ETH0, has_carrier=has_carrier)
            interfaces.read_links(40.0, max_age=0.0)
            assert interfaces.take_restored() == restored

    def test_a_link_with_another_mac_is_restored(self, interfaces, kernel):
        kernel.present[ETH0.index] = replace(ETH0, mac=b"\x02\0\0\0\0\x09")
        interfaces.read_links(40.0, max_age=30.0)
        assert interfaces.take_restored() == {ETH0.index}

    @pytest.mark.parametrize("change", [{"has_carrier": False}, {"mac": b"\x02\0\0\0\0\x09"}])
    def test_what_was_so_between_two_reads_is_not_missed(self, interfaces, kernel, change):
        interfaces.subscribe(lambda: None, lambda: None)
        kernel.notify(News(link=ETH0))
        assert interfaces.take_restored() == frozenset()
        kernel.notify(News(link=replace(ETH0, **change)))
        assert interfaces.take_restored() == {ETH0.index}

    def test_a_failed_read_is_raised_and_repeated(self, interfaces, kernel):
        kernel.refuse("links", errno.ENOBUFS)
        with pytest.raises(NetlinkError):
            interfaces.read_links(30.0, max_age=30.0)
        kernel.allow("links")
        interfaces.read_links(30.0, max_age=30.0)
        assert self.reads(kernel) == 3

    def test_a_link_has_its_name_or_else_its_index(self, interfaces):
        assert [interfaces.name_of(index) for index in (2, 9, 77)] == ["eth0", "kube-lb0", "77"]


@BOTH
class TestReadingAddresses:
    def test_all_addresses_are_returned(self, interfaces, kernel, vip):
        kernel.hold(OWN4, OWN6, held_at(vip))
        assert interfaces.read_addresses() == (OWN4, OWN6, held_at(vip))

    def test_an_address_that_vanished_is_no_longer_ours(self, interfaces, kernel, vip):
        interfaces.apply(plan_of(put_of(vip)))
        interfaces.read_addresses()
        assert interfaces.put == {(2, vip)}
        kernel.held.clear()
        interfaces.read_addresses()
        assert (interfaces.put, interfaces.held) == (frozenset(), {(2, vip)})

    def test_an_address_of_another_program_does_not_become_ours(self, interfaces, kernel, vip):
        kernel.hold(held_at(vip))
        interfaces.read_addresses()
        assert interfaces.put == frozenset()

    def test_a_kernel_that_showed_a_mark_keeps_marks(self, interfaces, kernel, vip):
        kernel.hold(OWN4, held_at(vip))
        interfaces.read_addresses()
        assert not interfaces.keeps_marks
        kernel.hold(held_at(vip, protocol=1))
        interfaces.read_addresses()
        kernel.held.clear()
        interfaces.read_addresses()
        assert interfaces.keeps_marks

    def test_an_address_of_another_program_is_not_taken_over(self, interfaces, kernel, logged, vip):
        kernel.hold(held_at(vip))
        assert not interfaces.apply(plan_of(put_of(vip)))
        assert (interfaces.put, kernel.held[2, vip]) == (frozenset(), held_at(vip))
        error = f"[Errno {errno.EEXIST}] {os.strerror(errno.EEXIST)}"
        fields = {"ip": str(vip), "interface": "eth0", "error": error}
        assert logged.fields("addFailed") == [fields]


@BOTH
class TestNotifications:
    @pytest.fixture
    def resumed(self):
        return Wakeup()

    @pytest.fixture
    def wakes(self, interfaces, kernel, vip, resumed):
        woken = []
        kernel.hold(held_at(vip, expires_at=9.0))
        interfaces.read_addresses()
        interfaces.subscribe(lambda: woken.append(True), resumed.notify)
        return lambda news: (kernel.notify(news), len(woken))[1]

    def test_a_reset_lifetime_wakes_no_task(self, wakes, vip):
        assert wakes(News(held_at(vip, expires_at=14.0, preferred_until=14.0))) == 0

    @pytest.mark.parametrize(
        "change",
        [
            {"tentative": True},
            {"dad_failed": True},
            {"deprecated": True},
            {"prefixlen": 27},
            {"protocol": ADDRESS_PROTOCOL},
            {"link": 3},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_any_other_change_of_an_address_wakes(self, wakes, vip, change):
        assert wakes(News(replace(held_at(vip), **change))) == 1

    def test_a_removed_address_wakes(self, wakes, vip):
        assert wakes(News(held_at(vip), is_gone=True)) == 1

    def test_an_unknown_address_wakes(self, wakes, vip):
        assert wakes(News(held_at(vip + 1))) == 1

    async def test_news_that_is_not_about_an_address_wakes(self, wakes, resumed):
        assert wakes(News()) == 1
        assert not await resumed.wait(seconds=0)

    async def test_a_resume_wakes_those_whose_timers_stood_still(self, wakes, resumed):
        assert wakes(News(is_resume=True)) == 1
        assert await resumed.wait(seconds=0)

    def test_an_address_removed_by_a_plan_is_news_when_it_is_back(
        self, wakes, interfaces, kernel, vip
    ):
        removal = Remove(held_at(vip), Reason.NOT_WINNER)
        interfaces.apply(plan_of(removes=[removal]))
        assert wakes(News(held_at(vip))) == 1


class TestDummies:
    def test_dummies_are_known_by_name_former_name_and_alias(self, registry):
        other, renamed = Link(3, "lb7"), Link(4, "renamed0", alias=LINK_ALIAS)
        interfaces = Interfaces(
            FakeKernel(ETH0, other, renamed, DUMMY), NodeMetrics(registry).addresses
        )
        interfaces.read_links(0.0, max_age=30.0)
        assert interfaces.dummies("lb7") == {3, 4, 9}
        assert interfaces.dummies("kube-lb0") == {4, 9}

    def test_a_created_dummy_is_logged(self, interfaces, logged):
        assert interfaces.make_dummy("kube-lb1")
        assert logged.fields("dummyCreated") == [{"interface": "kube-lb1"}]

    @REFUSALS
    def test_a_failure_to_create_a_dummy_is_logged_once(self, interfaces, kernel, logged, code):
        kernel.refuse("add_dummy", code)
        assert [interfaces.make_dummy("kube-lb1") for _time in range(3)] == [False] * 3
        error = f"[Errno {code}] {os.strerror(code)}"
        assert logged.fields("dummyNotCreated") == [{"interface": "kube-lb1", "error": error}]

    def test_another_failure_is_logged_again(self, interfaces, kernel, logged):
        for code in (errno.EPERM, errno.ENODEV):
            kernel.refuse("add_dummy", code)
            interfaces.make_dummy("kube-lb1")
        assert logged.events == ["dummyNotCreated"] * 2

    def test_a_failure_after_a_success_is_logged_again(self, interfaces, kernel, logged):
        for code in (errno.EPERM, None, errno.EPERM):
            if code:
                kernel.refuse("add_dummy", code)
            else:
                kernel.allow("add_dummy")
            interfaces.make_dummy("kube-lb1")
        assert logged.events == ["dummyNotCreated", "dummyCreated", "dummyNotCreated"]

    def test_only_dummies_created_by_an_agent_are_removed(self, interfaces, kernel, logged):
        interfaces.make_dummy("kube-lb1")
        interfaces.remove_dummies()
        assert list(kernel.present) == [2, 9]
        assert logged.fields("dummyRemoved") == [{"interface": "kube-lb1"}]

    def test_a_failure_to_remove_a_dummy_is_raised(self, interfaces, kernel):
        interfaces.make_dummy("kube-lb1")
        kernel.refuse("remove_link", errno.EPERM)
        with pytest.raises(NetlinkError):
            interfaces.remove_dummies()


@BOTH
class TestApply:
    def test_a_new_address_is_added(self, interfaces, kernel, count, logged, vip):
        assert interfaces.apply(plan_of(put_of(vip)))
        assert list(kernel.held) == [(2, vip)]
        assert interfaces.put == interfaces.held == {(2, vip)}
        assert (count("additions_total"), count("renewals_total")) == (1, 0)
        assert count("renewals_active") == 1
        assert logged.events == []

    def test_a_reset_lifetime_is_counted_as_a_renewal(self, interfaces, count, vip):
        interfaces.apply(plan_of(put_of(vip)))
        assert interfaces.apply(plan_of(put_of(vip, is_new=False)))
        assert (count("additions_total"), count("renewals_total")) == (1, 1)
        assert count("renewal_latency_seconds_count") == 2

    def test_an_unwanted_address_is_removed(self, interfaces, kernel, count, logged, vip):
        interfaces.apply(plan_of(put_of(vip)))
        removal = Remove(held_at(vip), Reason.NOT_WINNER)
        assert interfaces.apply(plan_of(removes=[removal]))
        assert (kernel.held, interfaces.put, interfaces.held) == ({}, frozenset(), frozenset())
        assert (count("withdrawals_total"), count("conflicts_total")) == (1, 0)
        assert count("renewals_active") == 0
        assert logged.fields("withdrawAddress") == [
            {"ip": str(vip), "interface": "eth0", "reason": "notWinner"}
        ]

    def test_an_address_that_failed_dad_is_counted_as_a_conflict(
        self, interfaces, kernel, count, logged, vip
    ):
        kernel.hold(failed := held_at(vip, dad_failed=True))
        interfaces.apply(plan_of(removes=[Remove(failed, Reason.ELECTION_WON)]))
        assert count("conflicts_total") == 1
        (fields,) = logged.fields("withdrawAddress")
        assert fields["reason"] == "duplicateAddressDetected"

    def test_removals_come_first(self, interfaces, kernel, vip):
        kernel.hold(held_at(vip, no_prefix_route=False))
        removal = Remove(held_at(vip), Reason.ELECTION_WON)
        interfaces.apply(plan_of(put_of(vip), removes=[removal]))
        assert kernel.calls[-2:] == ["remove", "put"]
        assert list(kernel.held) == [(2, vip)]

    def test_an_address_removed_by_others_is_put_back_and_logged(
        self, interfaces, kernel, count, logged, vip
    ):
        interfaces.apply(plan_of(put_of(vip)))
        kernel.held.clear()
        interfaces.read_addresses()
        interfaces.apply(plan_of(put_of(vip)))
        assert (count("additions_total"), count("watchdog_recoveries_total")) == (2, 1)
        assert logged.fields("addressPutBack") == [{"ip": str(vip), "interface": "eth0"}]

    def test_each_lifetime_is_what_is_left_when_it_is_sent(
        self, interfaces, kernel, logged, monkeypatch, vip
    ):
        began, put, sent = clock.now(), kernel.put, []
        moments = [began, began + 5, began + 8.5]

        def stopped_after(one):
            put(one)
            sent.append(one)
            moments.pop(0)

        monkeypatch.setattr(kernel, "put", stopped_after)
        monkeypatch.setattr(clock, "now", lambda: moments[0])
        made = [put_of(vip + number, ends_by=began + 9) for number in range(3)]
        assert not interfaces.apply(plan_of(*made))
        assert [(one.address, one.valid_lft) for one in sent] == [(vip, 9), (vip + 1, 4)]
        assert interfaces.held == {(2, vip), (2, vip + 1)}
        assert logged.fields("addTooLate") == [{"ip": str(vip + 2), "interface": "eth0"}]

    @REFUSALS
    def test_a_refused_addition_is_logged_and_the_others_are_made(
        self, interfaces, kernel, count, logged, vip, code
    ):
        kernel.refuse("put", code)
        removal = Remove(held_at(vip + 1), Reason.NO_SERVICE)
        assert not interfaces.apply(plan_of(put_of(vip), put_of(vip + 2), removes=[removal]))
        assert kernel.calls[-3:] == ["remove", "put", "put"]
        assert (interfaces.put, interfaces.held) == (frozenset(), frozenset())
        assert (count("additions_total"), count("renewal_errors_total")) == (0, 0)
        error = f"[Errno {code}] {os.strerror(code)}"
        first, second = logged.fields("addFailed")
        assert first == {"ip": str(vip), "interface": "eth0", "error": error}
        assert second["ip"] == str(vip + 2)

    def test_a_refused_renewal_is_counted_and_the_address_stays_held(
        self, interfaces, kernel, count, vip
    ):
        interfaces.apply(plan_of(put_of(vip)))
        kernel.refuse("put", errno.ENOBUFS)
        assert not interfaces.apply(plan_of(put_of(vip, is_new=False)))
        assert (count("renewals_total"), count("renewal_errors_total")) == (0, 1)
        assert interfaces.held == {(2, vip)}

    @REFUSALS
    def test_a_refused_removal_is_logged_and_the_address_stays_ours(
        self, interfaces, kernel, count, logged, vip, code
    ):
        interfaces.apply(plan_of(put_of(vip)))
        kernel.refuse("remove", code)
        removal = Remove(held_at(vip), Reason.NOT_WINNER)
        assert not interfaces.apply(plan_of(put_of(vip + 1), removes=[removal]))
        assert interfaces.put == {(2, vip), (2, vip + 1)}
        assert interfaces.held == {(2, vip + 1)}
        assert count("withdrawals_total") == 0
        error = f"[Errno {code}] {os.strerror(code)}"
        assert logged.fields("withdrawFailed") == [
            {"ip": str(vip), "interface": "eth0", "error": error}
        ]

    @pytest.mark.parametrize("is_there", [True, False])
    def test_the_next_read_shows_the_result_of_a_request_without_an_answer(
        self, interfaces, kernel, monkeypatch, vip, is_there
    ):
        def late(put):
            if is_there:
                kernel.hold(held_at(put.address))
            raise NoAnswerError(errno.ETIMEDOUT, "timed out")

        monkeypatch.setattr(kernel, "put", late)
        assert not interfaces.apply(plan_of(put_of(vip)))
        assert interfaces.held == frozenset()
        interfaces.read_addresses()
        interfaces.apply(plan_of(wanted={(2, vip)}))
        assert interfaces.held == ({(2, vip)} if is_there else set())

    def test_what_was_added_is_withdrawn_without_a_read(
        self, interfaces, kernel, count, logged, vip
    ):
        kernel.hold(held_at(vip + 1))
        interfaces.apply(plan_of(put_of(vip)))
        calls = kernel.calls.count("addresses")
        interfaces.withdraw_put(Reason.LEAVING)
        assert list(kernel.held) == [(2, vip + 1)]
        assert (interfaces.put, interfaces.held) == (frozenset(), frozenset())
        assert kernel.calls.count("addresses") == calls
        assert count("renewals_active") == 0
        (fields,) = logged.fields("withdrawAddress")
        assert fields["reason"] == "leaving"

    def test_an_address_that_needs_no_change_stays_held(self, interfaces, kernel, vip):
        interfaces.apply(plan_of(put_of(vip)))
        assert interfaces.apply(plan_of(wanted={(2, vip)}))
        assert interfaces.held == {(2, vip)}
        assert kernel.calls.count("put") == 1


class TestUsable:
    def usable(self, interfaces, vip, fresh=()):
        return interfaces.usable(set(fresh)) == {(2, vip)}

    @BOTH
    def test_a_held_address_is_usable_when_the_kernel_shows_it(self, interfaces, vip):
        interfaces.apply(plan_of(put_of(vip)))
        assert not self.usable(interfaces, vip)
        interfaces.read_addresses()
        assert self.usable(interfaces, vip)

    @BOTH
    def test_a_fresh_address_is_usable_before_it_is_read(self, interfaces, vip):
        interfaces.apply(plan_of(put_of(vip)))
        assert self.usable(interfaces, vip, fresh=[(2, vip)])

    @BOTH
    def test_an_address_whose_lifetime_must_have_ended_is_not_usable(
        self, interfaces, monkeypatch, vip
    ):
        interfaces.apply(plan_of(put_of(vip, ends_by=clock.now() + 9)))
        later = clock.now() + 10
        monkeypatch.setattr(clock, "now", lambda: later)
        assert not self.usable(interfaces, vip, fresh=[(2, vip)])

    @BOTH
    def test_an_address_that_is_not_held_is_never_usable(self, interfaces, kernel, vip):
        kernel.hold(held_at(vip))
        interfaces.read_addresses()
        assert interfaces.usable({(2, vip)}) == frozenset()

    @pytest.mark.parametrize("state", ["tentative", "dad_failed"])
    def test_an_address_in_duplicate_address_detection_is_not_usable(
        self, interfaces, kernel, state
    ):
        interfaces.apply(plan_of(put_of(VIP6, no_dad=False)))
        kernel.hold(held_at(VIP6, **{state: True}))
        interfaces.read_addresses()
        assert not self.usable(interfaces, VIP6)
        kernel.hold(held_at(VIP6))
        interfaces.read_addresses()
        assert self.usable(interfaces, VIP6)

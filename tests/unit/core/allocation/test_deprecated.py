# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Subnets that the network replaces: who has an address there keeps it, and no Service gets one."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network

import pytest

from purelb.core.allocation.choice import Live, live_of
from purelb.core.allocation.groups import Groups
from purelb.core.allocation.outcomes import Keep
from purelb.core.allocation.refusals import RefusalReason
from purelb.core.model import Lease, PoolType, ServiceGroup
from tests.support.core.builders import SUBNETS, asked, given_before, live, new, ranges

pytestmark = pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])


def subnet(version, number):
    return ip_network(SUBNETS[version].format(number))


def replaced(version, *numbers):
    """All three subnets have nodes, and these are replaced."""
    return replace(
        live(version, 1, 2, 3), deprecated=frozenset(subnet(version, n) for n in numbers)
    )


def groups(version, **more):
    return Groups([ServiceGroup("default", ranges=ranges(version), **more)])


def one(version, **more):
    return new(families=(version,), **more)


class TestLive:
    def test_a_subnet_is_replaced_if_all_nodes_in_it_say_so(self, version):
        first, second = subnet(version, 1), subnet(version, 2)
        both = Lease("n1", (first, second), deprecated=(first,))
        other = Lease("n2", (second,), deprecated=(second,))
        assert live_of([both, other]) == Live({first, second}, True, {first})
        last = Lease("n3", (first,))
        assert live_of([both, other, last]) == Live({first, second}, True, frozenset())
        assert live_of([]) == Live()

    def test_a_range_is_replaced_unless_a_lasting_subnet_holds_it_too(self, version):
        (first, *_others), wide = ranges(version), subnet(version, 1).supernet(4)
        assert replaced(version, 1).replaces(first, PoolType.LOCAL)
        assert not replaced(version, 2).replaces(first, PoolType.LOCAL)
        assert not replaced(version, 1).replaces(first, PoolType.REMOTE)
        both = Live(frozenset({subnet(version, 1), wide}), True, frozenset({subnet(version, 1)}))
        assert not both.replaces(first, PoolType.LOCAL)


def test_a_new_service_gets_an_address_of_a_lasting_subnet(version):
    outcome = asked(one(version), groups=groups(version), live=replaced(version, 1))
    assert outcome.addresses == (ranges(version)[1].first,)


def test_without_one_it_is_refused_with_the_remedy(version):
    outcome = asked(one(version), groups=groups(version), live=replaced(version, 1, 2, 3))
    assert outcome.reason is RefusalReason.SUBNET_DEPRECATED
    assert "add a range of the new subnet" in outcome.message


def test_who_has_an_address_keeps_it_until_it_is_evaluated_again(version):
    before = asked(one(version), groups=groups(version), live=live(version, 1))
    running = given_before(one(version), before)
    seen = {"groups": groups(version), "live": replaced(version, 1)}
    assert asked(running, **seen) == Keep()
    moved = asked(replace(running, asks_reevaluation=True), **seen)
    assert moved.addresses == (ranges(version)[1].first,)
    nowhere = {**seen, "live": replaced(version, 1, 2, 3)}
    stays = asked(replace(running, asks_reevaluation=True), **nowhere)
    assert (stays.reason, stays.keeps) == (RefusalReason.SUBNET_DEPRECATED, running.addresses)


def test_a_request_for_an_address_there_is_refused(version):
    first = ranges(version)[0].first
    wish = one(version, explicit=(first,))
    outcome = asked(wish, groups=groups(version), live=replaced(version, 1))
    assert outcome.reason is RefusalReason.SUBNET_DEPRECATED


def test_an_address_that_is_there_already_can_be_shared(version):
    shared = {"sharing_key": "key"}
    one_ = one(version, ports=frozenset({("TCP", 80)}), **shared)
    known = {"groups": groups(version)}
    running = given_before(one_, asked(one_, live=live(version, 1), **known))
    for wish in ((), running.addresses):
        other = new(
            "other",
            families=(version,),
            ports=frozenset({("TCP", 81)}),
            explicit=wish,
            **shared,
        )
        outcome = asked(other, running, live=replaced(version, 1), **known)
        assert outcome.addresses == running.addresses


def test_one_of_each_range_is_one_of_each_that_lasts(version):
    multi = groups(version, multi_pool=True)
    outcome = asked(one(version), groups=multi, live=replaced(version, 2))
    assert outcome.addresses == tuple(ranges(version)[i].first for i in (0, 2))
    assert outcome.partial == ()
    none = asked(one(version), groups=multi, live=replaced(version, 1, 2, 3))
    assert none.reason is RefusalReason.SUBNET_DEPRECATED

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""How a node announces addresses whose group learns of them from another system."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.allocation.ipam import listed_ranges
from purelb.core.model import ExternalSource, InterfaceAddress, NetBoxSource, PoolType, ServiceGroup
from tests.support.core.snapshots import (
    DUMMY,
    VIP4,
    VIP6,
    on_eth0,
    planned,
    service,
    snapshot,
)

NETBOX = ServiceGroup(
    "netbox", pool_type=PoolType.REMOTE, source=NetBoxSource("https://netbox", "purelb")
)
SIDECAR = ServiceGroup("sidecar", source=ExternalSource("acme", "/run/ipam.sock"))
LISTED = listed_ranges([f"{VIP4}/25", f"{VIP6}/72"])
families = pytest.mark.parametrize(
    ("address", "host", "listed", "segment"),
    [(VIP4, 32, 25, 24), (VIP6, 128, 72, 64)],
    ids=["v4", "v6"],
)


def made(group, address, *, held=(), is_served=True, **more):
    """A world with one address of the group on kube-lb0 or eth0."""
    given = {"allocated_from": group.name, "pool_type": group.pool_type}
    services = [service(addresses=(address,), **given)] if is_served else []
    return snapshot(
        *services,
        groups=(group,),
        held=held,
        dummy=DUMMY,
        dummies=frozenset({DUMMY.index}),
        **more,
    )


def masks(plan):
    return [(put.link, put.address, put.prefixlen) for put in plan.puts]


@families
def test_an_address_is_announced_before_the_status_of_its_group_names_it(
    address, host, listed, segment
):
    assert masks(planned(made(NETBOX, address))) == [(DUMMY.index, address, host)]
    assert masks(planned(made(SIDECAR, address))) == [(2, address, host)]


@families
def test_a_netbox_address_gets_the_mask_that_the_status_names(address, host, listed, segment):
    group = replace(NETBOX, ranges=LISTED)
    assert masks(planned(made(group, address))) == [(DUMMY.index, address, listed)]


@families
def test_a_mask_that_the_group_asks_for_needs_no_status(address, host, listed, segment):
    group = replace(NETBOX, source=replace(NETBOX.source, aggregation=26))
    assert masks(planned(made(group, address))) == [(DUMMY.index, address, 26)]


@families
def test_a_mask_learnt_late_is_corrected_in_one_plan(address, host, listed, segment):
    held = InterfaceAddress(DUMMY.index, address, host)
    plan = planned(made(replace(NETBOX, ranges=LISTED), address, held=[held]))
    assert [remove.held for remove in plan.removes] == [held]
    assert masks(plan) == [(DUMMY.index, address, listed)]


@families
def test_a_sidecars_address_keeps_its_mask_with_any_status(address, host, listed, segment):
    group = replace(SIDECAR, ranges=LISTED)
    plan = planned(made(group, address, held=[on_eth0(address)]))
    assert (plan.removes, plan.puts) == ((), ())


@families
def test_unused_address_is_removed_from_the_dummy_interface(address, host, listed, segment):
    held = InterfaceAddress(DUMMY.index, address, host)
    plan = planned(made(replace(NETBOX, ranges=LISTED), address, held=[held], is_served=False))
    assert [remove.held for remove in plan.removes] == [held]


@families
def test_external_ranges_never_clear_a_real_interface(address, host, listed, segment):
    own = on_eth0(address, prefixlen=segment, protocol=0)
    group = replace(SIDECAR, ranges=listed_ranges(["172.28.1.0/24", "fd28::/64"]))
    for keeps_marks in (True, False):
        at_rest = made(group, address, held=[own], is_served=False, keeps_marks=keeps_marks)
        assert planned(at_rest).removes == ()


@families
def test_an_address_left_by_a_process_before_goes_when_a_service_has_it_elsewhere(
    address, host, listed, segment
):
    left = on_eth0(address, prefixlen=segment)
    group = replace(SIDECAR, ranges=LISTED)
    plan = planned(made(group, address, held=[left], members=("n2",)))
    assert [remove.held for remove in plan.removes] == [left]


def test_an_address_of_no_group_at_all_is_announced_nowhere():
    one = service(addresses=(ip_address("192.0.2.1"),), pool_type=PoolType.REMOTE)
    plan = planned(snapshot(one, dummy=DUMMY, dummies=frozenset({DUMMY.index})))
    assert plan.puts == ()

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a refused Service is reduced to."""

from __future__ import annotations

import pytest

from purelb.core.allocation.outcomes import Remainder, remainder
from purelb.core.model import Announcement, PoolType
from tests.support.core.builders import new
from tests.support.core.snapshots import GROUP, VIP4, VIP6, service


def test_one_that_shows_what_it_keeps_is_left_alone():
    assert remainder(service(), (VIP4, VIP6), GROUP, has_own=True) is None
    assert remainder(new(), (), None, has_own=True) is None


@pytest.mark.parametrize("address", [VIP4, VIP6], ids=["v4", "v6"])
def test_lost_addresses_are_taken_off(address):
    assert remainder(service(), (address,), GROUP, has_own=True) == Remainder((address,), GROUP)
    assert remainder(service(), (), GROUP, has_own=True) == Remainder((), None)


@pytest.mark.parametrize(
    "forged",
    [{"allocated_from": "other"}, {"pool_type": PoolType.REMOTE}, {"skip_dad": True}],
    ids=["group", "kind", "dad"],
)
def test_annotations_of_others_are_corrected(forged):
    assert remainder(service(**forged), (VIP4, VIP6), GROUP, has_own=True) == Remainder(
        (VIP4, VIP6), GROUP
    )
    assert remainder(new(**forged), (), None, has_own=True) == Remainder((), None)


def test_without_the_group_they_are_left_alone():
    assert remainder(service(allocated_from="gone"), (VIP4, VIP6), None, has_own=True) is None


def test_addresses_of_another_load_balancer_are_left_alone():
    assert remainder(service(), (), None, has_own=False) is None
    theirs = service(allocated_by_us=False)
    assert remainder(theirs, (), None, has_own=False) is None
    assert remainder(theirs, (VIP4,), None, has_own=True) == Remainder((VIP4,), None)


def test_entries_of_others_are_taken_off():
    more = service(other_ingress=1)
    assert remainder(more, (VIP4, VIP6), GROUP, has_own=True) == Remainder((VIP4, VIP6), GROUP)


def test_what_agents_wrote_is_taken_off_one_without_addresses():
    listed = new(announcing={4: (Announcement("n1", "eth0", VIP4),)})
    assert remainder(listed, (), None, has_own=False) == Remainder((), None)

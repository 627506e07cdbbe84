# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a refused Service is reduced to."""

from __future__ import annotations

import pytest

from purelb.core.allocation.outcomes import Remainder, remainder
from purelb.core.model import PoolType
from tests.support.core.builders import new
from tests.support.core.snapshots import GROUP, VIP4, VIP6, service


def test_one_that_shows_what_it_keeps_is_left_alone():
    assert remainder(service(), (VIP4, VIP6), GROUP) is None
    assert remainder(new(), (), None) is None


@pytest.mark.parametrize("address", [VIP4, VIP6], ids=["v4", "v6"])
def test_lost_addresses_are_taken_off(address):
    assert remainder(service(), (address,), GROUP) == Remainder((address,), GROUP)
    assert remainder(service(), (), GROUP) == Remainder((), None)


@pytest.mark.parametrize(
    "forged",
    [{"allocated_from": "other"}, {"pool_type": PoolType.REMOTE}, {"skip_dad": True}],
    ids=["group", "kind", "dad"],
)
def test_annotations_of_others_are_corrected(forged):
    assert remainder(service(**forged), (VIP4, VIP6), GROUP) == Remainder((VIP4, VIP6), GROUP)
    assert remainder(new(**forged), (), None) == Remainder((), None)


def test_without_the_group_they_are_left_alone():
    assert remainder(service(allocated_from="gone"), (VIP4, VIP6), None) is None


def test_addresses_of_another_load_balancer_are_left_alone():
    theirs = service(allocated_by_us=False)
    assert remainder(theirs, (), None) is None
    assert remainder(theirs, (VIP4,), None) is None

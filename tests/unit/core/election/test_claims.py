# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.election.claims import (
    ALL_CLASSES,
    asks_us,
    claimed,
    concerns_agents,
    is_left_to_others,
    is_served,
)
from purelb.core.model import PoolType, Service, ServiceKey

PLAIN = Service(ServiceKey("default", "web"), is_load_balancer=True, allocated_by_us=True)
OURS = replace(PLAIN, load_balancer_class="purelb.io/purelbv2")
OURS_TOO = replace(PLAIN, load_balancer_class="purelb.io/purelb-v2")
FOREIGN = replace(PLAIN, load_balancer_class="purelb.io/purelb")
GIVEN = [replace(PLAIN, pool_type=kind) for kind in PoolType]
ALONE, COEXISTING = claimed(unclassed=True), claimed(unclassed=False)


def test_alone_we_claim_all_that_could_be_ours():
    assert ALONE == ALL_CLASSES
    assert ALL_CLASSES - {None} == COEXISTING


@pytest.mark.parametrize(
    ("service", "alone", "coexisting"),
    [(PLAIN, True, False), (OURS, True, True), (OURS_TOO, True, True), (FOREIGN, False, False)],
    ids=["no class", "ours", "ours too", "another"],
)
def test_the_class_says_whom_a_service_asks(service: Service, alone: object, coexisting: object):
    assert asks_us(service, ALONE) is alone
    assert asks_us(service, COEXISTING) is coexisting
    assert not asks_us(replace(service, is_load_balancer=False), ALONE)


@pytest.mark.parametrize(
    ("service", "alone", "coexisting"),
    [
        (PLAIN, True, False),
        (OURS, True, True),
        (FOREIGN, False, False),
        (replace(FOREIGN, pool_type=PoolType.LOCAL), False, False),
        *((given, True, True) for given in GIVEN),
    ],
    ids=["no class", "ours", "another", "another, given", "given local", "given remote"],
)
def test_agents_next_to_another_purelb_keep_to_what_ours_has_given(
    service: Service, alone: object, coexisting: object
):
    assert concerns_agents(service, ALONE) is alone
    assert concerns_agents(service, COEXISTING) is coexisting


def test_what_is_served_is_of_no_other_class_and_not_being_deleted():
    assert is_served(PLAIN)
    assert is_served(OURS)
    assert is_served(replace(PLAIN, allocated_by_us=False))
    assert not is_served(FOREIGN)
    assert not is_served(replace(PLAIN, is_load_balancer=False))
    assert not is_served(replace(PLAIN, is_terminating=True))


def test_only_one_without_a_class_is_left_to_others():
    assert is_left_to_others(PLAIN, COEXISTING)
    assert is_left_to_others(replace(PLAIN, is_terminating=True), COEXISTING)
    assert not is_left_to_others(PLAIN, ALONE)
    assert not is_left_to_others(FOREIGN, COEXISTING)
    assert not is_left_to_others(replace(PLAIN, is_load_balancer=False), COEXISTING)

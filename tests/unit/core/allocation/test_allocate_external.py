# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Services of groups whose addresses an external IPAM allocates."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.allocation.allocate import decide, rebuild
from purelb.core.allocation.allocations import Allocations
from purelb.core.allocation.choice import Live
from purelb.core.allocation.external_ipam import answered
from purelb.core.allocation.groups import Groups
from purelb.core.allocation.ipam import IpamRequest
from purelb.core.allocation.outcomes import Ask, Keep
from purelb.core.allocation.refusals import RefusalReason
from purelb.core.model import ExternalSource, PoolType, Service, ServiceGroup, ServiceKey

GROUP = ServiceGroup("default", pool_type=PoolType.REMOTE, source=ExternalSource("acme", "/s"))
GROUPS = Groups([GROUP])
V4, V6 = ip_address("10.0.0.1"), ip_address("fd00::1")
FIRST = {4: V4, 6: V6}
KEY = ServiceKey("default", "web")
ASK = Ask(GROUP, IpamRequest(KEY))


def new(**more):
    return Service(KEY, **{"families": (4, 6), **more})


def served(*addresses, **more):
    return new(
        addresses=addresses,
        allocated_by_us=True,
        allocated_from="default",
        pool_type=PoolType.REMOTE,
        **more,
    )


def asked(service, *others):
    return decide(service, GROUPS, rebuild([service, *others], GROUPS), Live())


class TestQuestion:
    def test_names_the_families(self):
        assert asked(new()) == Ask(GROUP, IpamRequest(KEY, families=(4, 6)))

    @pytest.mark.parametrize(("across", "key"), [(False, "default/x"), (True, "x")])
    def test_has_a_sharing_key_of_the_namespace_unless_sharing_crosses_them(self, across, key):
        groups = Groups([replace(GROUP, shares_across_namespaces=across)])
        outcome = decide(new(sharing_key="x"), groups, Allocations(), Live())
        assert outcome.request.sharing_key == key

    @pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
    def test_or_the_addresses_that_are_asked_for(self, version):
        outcome = asked(new(explicit=(FIRST[version],)))
        assert outcome == Ask(GROUP, IpamRequest(KEY, explicit=(FIRST[version],)))

    @pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
    def test_is_asked_again_when_another_address_is_asked_for(self, version):
        outcome = asked(served(V4, V6, explicit=(FIRST[version] + 1,)))
        assert outcome.request.explicit == (FIRST[version] + 1,)

    def test_is_asked_again_when_a_family_is_missing(self):
        assert isinstance(asked(served(V4)), Ask)

    def test_is_not_asked_once_all_is_there(self):
        assert asked(served(V4, V6)) == Keep()
        assert asked(served(V4, explicit=(V4,))) == Keep()

    def test_is_not_asked_for_marks_that_are_wrong(self):
        outcome = asked(replace(served(V4, V6), pool_type=PoolType.LOCAL))
        assert (outcome.addresses, outcome.pool_type) == ((V4, V6), PoolType.REMOTE)
        assert outcome.is_leased

    def test_a_family_that_was_removed_needs_none(self):
        assert asked(served(V4, V6, families=(6,))).addresses == (V6,)

    @pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
    def test_is_not_asked_for_a_family_that_the_service_does_not_have(self, version):
        outcome = asked(new(families=(10 - version,), explicit=(FIRST[version],)))
        assert outcome.reason is RefusalReason.INVALID_ADDRESS

    def test_is_not_asked_for_one_of_each_range(self):
        assert asked(new(multi_pool=True)).reason is RefusalReason.MULTIPOOL_REFUSED


class TestAnswer:
    @pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
    def test_address_of_a_node_is_refused(self, version):
        allocations = Allocations()
        allocations.exclude_nodes([FIRST[version]])
        outcome = answered(new(families=(version,)), ASK, [FIRST[version]], allocations, ())
        assert outcome.reason is RefusalReason.NODE_ADDRESS

    def test_is_what_the_service_gets_in_the_order_of_its_families(self):
        outcome = answered(new(families=(6, 4)), ASK, [V4, V6], Allocations(), ())
        assert (outcome.addresses, outcome.is_leased) == ((V6, V4), True)

    def test_that_changes_nothing_keeps_everything(self):
        assert answered(served(V4), ASK, [V4], Allocations(), [V4]) == Keep()

    def test_with_one_family_is_enough_for_who_only_prefers_both(self):
        assert answered(new(), ASK, [V6], Allocations(), ()).addresses == (V6,)

    @pytest.mark.parametrize("given", [(V4,), ()], ids=["one", "none"])
    def test_without_a_family_that_is_required_is_a_refusal(self, given):
        outcome = answered(new(requires_dual_stack=True), ASK, given, Allocations(), ())
        assert outcome.reason is RefusalReason.EXHAUSTED

    @pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
    def test_with_an_address_of_another_service_is_a_refusal(self, version):
        allocations = Allocations()
        allocations.hold(Service(ServiceKey("default", "other")), [FIRST[version]])
        outcome = answered(new(), ASK, [FIRST[version]], allocations, ())
        assert outcome.reason is RefusalReason.SHARING_KEY_CONFLICT
        assert "already in use by another Service" in outcome.message
        assert outcome.detail == "Service default/other has it"

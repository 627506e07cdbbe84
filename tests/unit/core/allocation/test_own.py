# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which addresses in a status are ours: what a user's replacement and another controller leave."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.allocation.allocate import decide, rebuild
from purelb.core.allocation.allocations import Allocations
from purelb.core.allocation.groups import Groups
from purelb.core.allocation.outcomes import Assignment, Keep, Refusal, Release
from purelb.core.allocation.own import own_addresses
from purelb.core.model import Announcement, ServiceGroup
from tests.support.core.builders import FIRST, GROUPS, NO_NODES, asked, new, ranges
from tests.support.core.snapshots import GROUP, VIP4, VIP6, service

FAMILIES = pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
NODE = {4: ip_address("192.0.2.1"), 6: ip_address("2001:db8::1")}
OURS = frozenset({"purelb-allocator"})
THEIRS = frozenset({"k3s"})
# The group that serves the namespace since later than the Service exists.
LATER = ServiceGroup(
    "later", created="9", namespaces=frozenset({"default"}), ranges=(*ranges(4), *ranges(6))
)
BOTH = Groups([GROUP, LATER])


def held(*addresses, group="default"):
    ledger = Allocations()
    ledger.hold(new(), addresses, group)
    return ledger


def one(version, *addresses, **more):
    return new(families=(version,), addresses=addresses, **more)


@FAMILIES
class TestReplaced:
    """The user's own manifest has taken our annotations away; the status stays."""

    @pytest.mark.parametrize("is_known", [True, False], ids=["ledger", "start"])
    def test_a_new_group_for_its_namespace_does_not_move_it(self, version, is_known):
        bare = one(version, FIRST[version])
        ledger = held(FIRST[version]) if is_known else rebuild([bare], BOTH)
        outcome = decide(bare, BOTH, ledger, NO_NODES)
        assert (outcome.group, outcome.addresses) == ("default", (FIRST[version],))

    def test_it_keeps_what_a_group_gave_that_it_names_no_more(self, version):
        first = ranges(version)[0].first
        outcome = decide(one(version, first), BOTH, held(first, group="later"), NO_NODES)
        assert (outcome.group, outcome.addresses) == ("later", (first,))

    def test_it_keeps_what_it_requested_once(self, version):
        wanted = FIRST[version] + 3
        outcome = decide(one(version, wanted), GROUPS, held(wanted), NO_NODES)
        assert outcome.addresses == (wanted,)

    @pytest.mark.parametrize("is_known", [True, False], ids=["ledger", "start"])
    def test_it_keeps_an_address_of_a_former_pool(self, version, is_known):
        bare = one(version, NODE[version], address_writers=OURS)
        ledger = held(NODE[version]) if is_known else rebuild([bare], GROUPS)
        outcome = decide(bare, GROUPS, ledger, NO_NODES)
        if is_known:
            assert outcome.addresses == (NODE[version],)
        else:
            assert outcome == Keep((NODE[version],))

    def test_it_is_released_when_its_type_changes_at_once(self, version):
        bare = replace(one(version, FIRST[version]), is_load_balancer=False)
        assert decide(bare, GROUPS, held(FIRST[version]), NO_NODES) == Release()
        assert decide(bare, GROUPS, Allocations(), NO_NODES) == Keep()


@FAMILIES
class TestForeign:
    """Another program writes the status, too."""

    def test_its_entries_do_not_stay(self, version):
        mixed = one(version, FIRST[version], NODE[version], address_writers=THEIRS)
        outcome = decide(mixed, GROUPS, held(FIRST[version]), NO_NODES)
        assert outcome.addresses == (FIRST[version],)

    def test_ours_comes_back(self, version):
        theirs = one(version, NODE[version], address_writers=THEIRS)
        outcome = decide(theirs, GROUPS, held(FIRST[version] + 2), NO_NODES)
        assert outcome.addresses == (FIRST[version] + 2,)

    def test_one_in_our_pool_does_not_replace_ours(self, version):
        theirs = one(version, FIRST[version], address_writers=THEIRS)
        outcome = decide(theirs, GROUPS, held(FIRST[version] + 2), NO_NODES)
        assert outcome.addresses == (FIRST[version] + 2,)

    def test_one_in_our_pool_is_kept_where_we_gave_none(self, version):
        """So a Service keeps its address when PureLB takes the pool of another program over."""
        theirs = one(version, FIRST[version] + 2, address_writers=frozenset({"controller"}))
        assert asked(theirs).addresses == (FIRST[version] + 2,)

    def test_host_names_do_not_stay(self, version):
        marked = service(families=(version,), addresses=(FIRST[version],), address_writers=THEIRS)
        assert asked(marked) == Keep()
        assert isinstance(asked(replace(marked, other_ingress=1)), Assignment)

    def test_at_start_a_nodes_address_is_not_taken_for_ours(self, version):
        marked = service(families=(version,), addresses=(NODE[version],))
        assert own_addresses(marked, GROUPS, Allocations()) == (NODE[version],)
        ledger = rebuild([marked], GROUPS, of_nodes=[NODE[version]])
        assert ledger.given(marked.key) == frozenset()
        theirs = replace(marked, address_writers=THEIRS)
        assert own_addresses(theirs, GROUPS, Allocations()) == ()
        entry = Announcement("n1", "eth0", NODE[version])
        announced = replace(theirs, announcing={version: (entry,)})
        assert own_addresses(announced, GROUPS, Allocations()) == (NODE[version],)

    def test_a_refused_service_keeps_only_ours(self, version):
        mixed = one(version, FIRST[version], NODE[version], group="gone", address_writers=THEIRS)
        outcome = decide(mixed, GROUPS, held(FIRST[version]), NO_NODES)
        assert isinstance(outcome, Refusal)
        assert outcome.keeps == (FIRST[version],)

    def test_an_address_that_another_load_balancer_gave_is_in_use(self, version):
        theirs = one(version, FIRST[version], load_balancer_class="example.com/other")
        ledger = rebuild([theirs], GROUPS)
        assert ledger.holders(FIRST[version]) == (theirs.key,)
        assert ledger.group_of(theirs.key) is None
        assert decide(theirs, GROUPS, ledger, NO_NODES) == Keep()


class TestDeleted:
    """A finalizer keeps a Service that is being deleted."""

    def test_it_gives_its_addresses_back(self):
        assert asked(service(is_terminating=True)) == Release()

    def test_it_gets_none(self):
        assert asked(new(is_terminating=True)) == Keep()

    def test_one_of_another_purelb_is_left_alone(self):
        classes = frozenset({"purelb.io/purelbv2"})
        ledger = rebuild([service(is_terminating=True)], GROUPS, classes=classes)
        outcome = decide(service(is_terminating=True), GROUPS, ledger, NO_NODES, classes=classes)
        assert outcome == Keep()


def test_entries_of_agents_are_taken_off_one_that_is_no_load_balancer():
    listed = new(is_load_balancer=False, announcing={4: (Announcement("n1", "eth0", VIP4),)})
    assert asked(listed) == Release()


def test_a_group_of_another_name_with_the_same_range_keeps_everything():
    renamed = Groups([replace(GROUP, name="renamed")])
    outcome = decide(service(), renamed, held(VIP4, VIP6), NO_NODES)
    assert (outcome.group, outcome.addresses) == ("renamed", (VIP4, VIP6))

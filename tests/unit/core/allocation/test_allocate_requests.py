# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Services that ask for an address by name, or to share one."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest

from purelb.core.allocation.allocate import decide, rebuild
from purelb.core.allocation.groups import Groups
from purelb.core.allocation.outcomes import Keep
from purelb.core.allocation.refusals import RefusalReason
from purelb.core.model import ServiceKey
from tests.support.core.builders import (
    DNS,
    FIRST,
    GROUPS,
    HTTP,
    NO_NODES,
    asked,
    given_before,
    new,
    ranges,
    taken,
)
from tests.support.core.snapshots import GROUP, VIP4, VIP6, service


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
class TestExplicit:
    def test_gets_the_requested_addresses(self, version):
        outcome = asked(new(families=(version,), explicit=(FIRST[version] + 4,)))
        assert outcome.addresses == (FIRST[version] + 4,)

    def test_the_other_family_comes_from_the_same_group(self, version):
        outcome = asked(new(explicit=(FIRST[version] + 4,)))
        assert outcome.addresses == tuple(FIRST[v] + 4 * (v == version) for v in (4, 6))

    def test_moves_to_another_requested_address(self, version):
        running = service(explicit=(FIRST[version] + 4,))
        assert asked(running).addresses == tuple(FIRST[v] + 4 * (v == version) for v in (4, 6))

    def test_is_left_alone_once_it_has_it(self, version):
        mine = (FIRST[version] + 4,)
        one = new(families=(version,), explicit=mine)
        assert asked(given_before(one, asked(one))) == Keep()

    @pytest.mark.parametrize(
        ("more", "reason", "words"),
        [
            ({"explicit": 99}, "unknown_pool", "has no range with"),
            ({"explicit": 1}, "sharing_key_conflict", "already in use by another Service"),
            ({"explicit": 1, "sharing_key": "x"}, "sharing_key_conflict", "allow-shared-ip"),
            ({"malformed": ("1.2.3",)}, "invalid_address", "'1.2.3' is no IP address"),
            ({"explicit": 4, "other_family": True}, "invalid_address", "spec.ipFamilies"),
            ({"explicit": 4, "second": 5}, "multipool_refused", "request one only"),
            (
                {"explicit": 4, "second": 5, "multi_pool": True},
                "multipool_pool_mismatch",
                "is the second of",
            ),
        ],
        ids=["outside", "taken", "key", "garbage", "family", "two", "two-of-one-range"],
    )
    def test_refusal_has_the_reason(self, version, more, reason, words):
        settings = dict(more)
        offsets = [settings.pop(n) for n in ("explicit", "second") if n in settings]
        family = 10 - version if settings.pop("other_family", False) else version
        explicit = tuple(FIRST[version] + offset for offset in offsets)
        asking = new(families=(family,), explicit=explicit, **settings)
        outcome = decide(asking, GROUPS, taken(FIRST[version] + 1), NO_NODES)
        assert (outcome.reason.value, words in outcome.message) == (reason, True), outcome

    def test_address_of_a_node_is_not_allocated(self, version):
        ledger = taken()
        ledger.exclude_nodes([FIRST[version]])
        named = new(families=(version,), explicit=(FIRST[version],))
        refusal = decide(named, GROUPS, ledger, NO_NODES)
        assert (refusal.reason.value, "the address of a Node" in refusal.message) == (
            "node_address",
            True,
        )
        given = decide(new(families=(version,)), GROUPS, ledger, NO_NODES)
        assert given.addresses == (FIRST[version] + 1,)

    def test_address_that_a_node_has_by_now_stays_until_it_is_evaluated_again(self, version):
        one = new(families=(version,), explicit=(FIRST[version],))
        running = given_before(one, asked(one))
        ledger = rebuild([running], GROUPS)
        ledger.exclude_nodes([FIRST[version]])
        assert decide(running, GROUPS, ledger, NO_NODES) == Keep()
        again = replace(running, explicit=(), asks_reevaluation=True)
        assert decide(again, GROUPS, ledger, NO_NODES).addresses == (FIRST[version] + 1,)

    def test_address_of_another_host_is_given_only_on_request(self, version):
        ledger = taken()
        assert ledger.set_aside([FIRST[version]]) == {FIRST[version]}
        given = decide(new(families=(version,)), GROUPS, ledger, NO_NODES)
        assert given.addresses == (FIRST[version] + 1,)
        named = new(families=(version,), explicit=(FIRST[version],))
        assert decide(named, GROUPS, ledger, NO_NODES).addresses == (FIRST[version],)
        assert ledger.set_aside([]) == frozenset()
        assert decide(new(families=(version,)), GROUPS, ledger, NO_NODES).addresses == (
            FIRST[version],
        )

    def test_who_has_such_an_address_keeps_it_unless_it_is_replaced(self, version):
        one = new(families=(version,))
        running = given_before(one, asked(one))
        ledger = rebuild([running], GROUPS)
        ledger.set_aside([FIRST[version]])
        assert decide(running, GROUPS, ledger, NO_NODES) == Keep()
        ledger.replace(FIRST[version])
        assert decide(running, GROUPS, ledger, NO_NODES).addresses == (FIRST[version] + 1,)
        named = replace(running, explicit=(FIRST[version],))
        assert decide(named, GROUPS, ledger, NO_NODES) == Keep()

    def test_without_another_address_it_keeps_the_one_of_another_host(self, version):
        whole = next(r for r in GROUP.ranges if r.first.version == version)
        only = (replace(whole, last=FIRST[version]),)
        small = Groups([replace(GROUP, ranges=only)])
        one = new(families=(version,))
        running = given_before(one, decide(one, small, taken(), NO_NODES))
        ledger = rebuild([running], small)
        ledger.set_aside([FIRST[version]])
        ledger.replace(FIRST[version])
        refusal = decide(running, small, ledger, NO_NODES)
        assert (refusal.reason, refusal.keeps) == (RefusalReason.EXHAUSTED, (FIRST[version],))

    def test_sharers_get_another_address_together(self, version):
        both, given, ledger = [], [], taken()
        for name, port in (("a", HTTP), ("b", DNS)):
            one = new(name, families=(version,), sharing_key="x", ports=frozenset({port}))
            assignment = decide(one, GROUPS, ledger, NO_NODES)
            ledger.hold(one, assignment.addresses, "default")
            both.append(given_before(one, assignment))
        ledger.set_aside([FIRST[version]])
        ledger.replace(FIRST[version])
        for one in both:
            assignment = decide(one, GROUPS, ledger, NO_NODES)
            ledger.hold(one, assignment.addresses, "default")
            given += assignment.addresses
        assert given == [FIRST[version] + 1] * 2
        # It is free of them, so nothing is left to replace.
        assert not ledger.holders(FIRST[version])
        assert not ledger.is_replaced(both[0].key, FIRST[version])

    def test_an_address_that_its_pool_has_lost_stays(self, version):
        shrunk = Groups([replace(GROUP, ranges=ranges(4) + ranges(6))])
        assert asked(service(explicit=(FIRST[version],)), groups=shrunk) == Keep((VIP4, VIP6))


@pytest.mark.parametrize("version", [4, 6], ids=["v4", "v6"])
class TestSharing:
    def other(self, version, **more):
        more = {"created": "2026-01-01T00:00:00Z", **more}
        one = new("other", families=(version,), sharing_key="x", ports=frozenset({HTTP}), **more)
        return given_before(one, asked(one))

    def test_services_with_one_key_get_one_address(self, version):
        mine = new(families=(version,), sharing_key="x", ports=frozenset({DNS}), created="2026-02")
        assert asked(mine, self.other(version)).addresses == (FIRST[version],)

    def test_not_on_the_same_port(self, version):
        mine = new(families=(version,), sharing_key="x", ports=frozenset({HTTP, DNS}))
        outcome = asked(mine, self.other(version))
        assert outcome.reason is RefusalReason.PORT_CONFLICT
        assert "change the port, or the annotation purelb.io/allow-shared-ip" in outcome.message
        asking = replace(mine, explicit=(FIRST[version],))
        outcome = asked(asking, self.other(version))
        assert outcome.reason is RefusalReason.PORT_CONFLICT
        assert "another Service with this annotation" in outcome.message
        assert "listens on 80/TCP" in outcome.message
        assert outcome.detail == "Service default/other has it"

    def test_not_with_another_key(self, version):
        mine = new(families=(version,), sharing_key="y", ports=frozenset({DNS}))
        assert asked(mine, self.other(version)).addresses == (FIRST[version] + 1,)

    def test_added_port_conflict_costs_the_later_service_its_address(self, version):
        mine = new(families=(version,), sharing_key="x", ports=frozenset({DNS}), created="2026-02")
        running = given_before(mine, asked(mine, self.other(version)))
        allocations = rebuild([self.other(version), running], GROUPS)
        changed = replace(running, ports=frozenset({HTTP}))
        outcome = decide(changed, GROUPS, allocations, NO_NODES)
        assert (outcome.reason, outcome.keeps) == (RefusalReason.PORT_CONFLICT, ())

    def test_the_earlier_service_keeps_it_with_any_additions(self, version):
        mine = new(families=(version,), sharing_key="x", ports=frozenset({DNS}), created="2026-02")
        running = given_before(mine, asked(mine, self.other(version)))
        allocations = rebuild([self.other(version), running], GROUPS)
        changed = replace(self.other(version), ports=frozenset({HTTP, DNS}))
        assert decide(changed, GROUPS, allocations, NO_NODES) == Keep()
        allocations.hold(changed, changed.addresses)
        later = decide(running, GROUPS, allocations, NO_NODES)
        assert later.reason is RefusalReason.PORT_CONFLICT

    def test_only_within_a_namespace_unless_the_group_says_otherwise(self, version):
        key = ServiceKey("shop", "web")
        far = replace(new(families=(version,), sharing_key="x", ports=frozenset({DNS})), key=key)
        assert asked(far, self.other(version)).addresses == (FIRST[version] + 1,)
        explicit = replace(far, explicit=(FIRST[version],))
        outcome = asked(explicit, self.other(version))
        assert outcome.reason is RefusalReason.SHARING_KEY_CONFLICT
        wide = Groups([replace(GROUP, shares_across_namespaces=True)])
        assert asked(far, self.other(version), groups=wide).addresses == (FIRST[version],)

    def test_explicit_address_with_a_new_conflict_is_lost(self, version):
        mine = new(families=(version,), sharing_key="x", ports=frozenset({DNS}), created="2026-02")
        running = given_before(mine, asked(mine, self.other(version)))
        allocations = rebuild([self.other(version), running], GROUPS)
        changed = replace(running, ports=frozenset({HTTP}), explicit=(FIRST[version],))
        outcome = decide(changed, GROUPS, allocations, NO_NODES)
        assert (outcome.reason, outcome.keeps) == (RefusalReason.PORT_CONFLICT, ())


def test_an_address_may_be_asked_for_of_a_pool_that_holds_it():
    asking = new(families=(4,), explicit=(ip_address("172.28.1.229"),))
    assert asked(asking).addresses == (ip_address("172.28.1.229"),)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The standing of nodes: taints, the label and the service proxy, and when they count."""

from __future__ import annotations

import pytest

from purelb.core.election.draining import NodeMarks
from purelb.core.election.members import (
    EXCLUDE_RULE,
    PROXY_RULE,
    Member,
    ServiceProxy,
    Standing,
    members_of,
)
from purelb.core.model import Lease
from purelb.core.names import DRAINING_TAINTS, SPOT_TAINT_KEY
from tests.support.core.snapshots import NET4, NET6

BOTH_RULES = (EXCLUDE_RULE, PROXY_RULE)
WELL, ILL, ABSENT, UNSURE, UNKNOWN = "well", "ill", "absent", "unsure", ""
EXCLUDED = NodeMarks("uid", is_excluded=True)


def standings(leases, marked=None):
    return {m.node: m.standing for m in members_of(leases, marked or {})}


def proxies(*states, rules=BOTH_RULES):
    """The nodes n1, n2 … that are passed over, if their agents say this of the service proxies."""
    leases = [
        Lease(f"n{i}", rules=rules, service_proxy=state) for i, state in enumerate(states, start=1)
    ]
    found = standings(leases)
    assert set(found.values()) <= {Standing.FIRST, Standing.ILL}
    return [node for node, standing in found.items() if standing is Standing.ILL]


def test_they_are_sorted_and_have_their_subnets():
    leases = [Lease("b", (NET6,)), Lease("a", (NET4,))]
    assert members_of(leases, {}) == (Member("a", (NET4,)), Member("b", (NET6,)))


def test_without_a_lease_there_is_none():
    assert members_of([], {"a": EXCLUDED}) == ()


@pytest.mark.parametrize("rules", [(), BOTH_RULES], ids=["no rules", "rules"])
def test_taints_count_in_any_case(rules):
    marked = {
        node: NodeMarks("", taint) for node, taint in zip("abc", DRAINING_TAINTS, strict=True)
    }
    found = standings([Lease(node, rules=rules) for node in "abcd"], marked)
    assert DRAINING_TAINTS[2] == SPOT_TAINT_KEY
    assert found == {
        "a": Standing.DRAINED,
        "b": Standing.DRAINED,
        "c": Standing.EVICTED,
        "d": Standing.FIRST,
    }


def test_of_label_and_taint_the_taint_counts():
    marked = {
        node: NodeMarks("", taint, True) for node, taint in zip("abc", DRAINING_TAINTS, strict=True)
    }
    found = standings([Lease(node, rules=BOTH_RULES) for node in "abc"], marked)
    assert found == {"a": Standing.DRAINED, "b": Standing.DRAINED, "c": Standing.EVICTED}


@pytest.mark.parametrize(
    ("rules", "standing"),
    [
        ([BOTH_RULES, (EXCLUDE_RULE,)], Standing.EXCLUDED),
        # An agent of the Go implementation, or one whose setting has not changed yet.
        ([BOTH_RULES, ()], Standing.FIRST),
        ([(), BOTH_RULES], Standing.FIRST),
        ([BOTH_RULES, (PROXY_RULE,)], Standing.FIRST),
    ],
    ids=["all agents", "not the other one", "not its own", "only another rule"],
)
def test_the_label_counts_where_all_agents_look_at_it(rules, standing):
    leases = [Lease("a", node_uid="uid", rules=rules[0]), Lease("b", rules=rules[1])]
    assert standings(leases, {"a": EXCLUDED})["a"] is standing


def test_the_label_of_another_node_of_that_name_does_not_count():
    leases = [Lease("a", node_uid="before", rules=BOTH_RULES)]
    assert standings(leases, {"a": EXCLUDED}) == {"a": Standing.FIRST}


class TestServiceProxy:
    @pytest.mark.parametrize(
        ("states", "passed_over"),
        [
            ((ILL, WELL, WELL), ["n1"]),
            ((ILL, ILL, WELL), ["n1", "n2"]),
            ((ILL, WELL), ["n1"]),
            ((ILL, ILL, ILL), []),
            # They end together: none says any more that its own works.
            ((ILL, UNSURE, UNSURE), []),
            ((ILL, UNSURE, WELL), ["n1"]),
            ((ILL, UNKNOWN, UNKNOWN), []),
            # kube-proxy was replaced while the agents ran; the last node never had one.
            ((ILL, ILL, ILL, ABSENT), []),
        ],
    )
    def test_one_that_ended_counts_while_that_of_another_works(self, states, passed_over):
        assert proxies(*states) == passed_over

    @pytest.mark.parametrize(
        ("states", "passed_over"),
        [
            ((ABSENT, ABSENT, ABSENT), []),
            ((ABSENT, WELL, WELL), ["n1"]),
            ((ABSENT, WELL), ["n1"]),
            ((ABSENT, ABSENT, WELL), []),
            ((ABSENT, ABSENT, WELL, WELL), ["n1", "n2"]),
            ((ABSENT, UNKNOWN, WELL), []),
            ((ABSENT,), []),
        ],
    )
    def test_one_that_never_was_there_counts_where_most_have_one(self, states, passed_over):
        assert proxies(*states) == passed_over

    @pytest.mark.parametrize("state", [UNKNOWN, UNSURE, WELL, "of a later version"])
    def test_no_other_state_counts(self, state):
        assert proxies(state, WELL, WELL) == []

    def test_it_counts_only_where_all_agents_look_at_it(self):
        assert proxies(ILL, WELL, rules=(EXCLUDE_RULE,)) == []

    def test_it_counts_more_than_an_eviction_and_less_than_the_taint_of_a_leaving_node(self):
        leases = [
            Lease(node, rules=BOTH_RULES, service_proxy=state)
            for node, state in zip("abc", (ILL, ILL, WELL), strict=True)
        ]
        marked = {"a": NodeMarks("", SPOT_TAINT_KEY, True), "b": NodeMarks("", DRAINING_TAINTS[0])}
        found = standings(leases, marked)
        assert found == {"a": Standing.ILL, "b": Standing.DRAINED, "c": Standing.FIRST}


def test_states_are_spelled_as_in_a_lease():
    assert {state.value for state in ServiceProxy} == {WELL, ILL, ABSENT, UNSURE, UNKNOWN}

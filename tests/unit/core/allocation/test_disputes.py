# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What others undo, in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.allocation.disputes import dispute, essence_of, foreign_entries, kept_local
from purelb.core.allocation.outcomes import Assignment, Release
from purelb.core.model import PoolType
from tests.support.core.builders import new
from tests.support.core.snapshots import VIP4, VIP6, service

GIVEN = Assignment("default", (VIP4, VIP6), PoolType.LOCAL, skip_dad=False)
PROXIED = "host names or addresses in ipMode Proxy"
THEIRS = frozenset({"k3s", "purelb-allocator"})


def test_the_same_with_another_policy_is_no_other_outcome():
    assert essence_of(replace(GIVEN, sets_cluster=True)) == essence_of(GIVEN)
    assert essence_of(replace(GIVEN, addresses=(VIP4,))) != essence_of(GIVEN)
    assert essence_of(Release()) == Release()


def test_others_in_the_status_are_named_with_what_they_wrote():
    theirs = service(address_writers=THEIRS, other_ingress=1)
    assert foreign_entries(theirs, (VIP6,)) == (str(VIP4), PROXIED)
    what, remedy = dispute(theirs, GIVEN, (VIP6,))
    assert what.startswith(f"k3s writes {VIP4}, {PROXIED} into its status")
    assert "loadBalancerClass" in remedy


@pytest.mark.parametrize(
    ("left", "outcome", "words"),
    [
        (
            service(policy_writers=frozenset({"argocd"})),
            replace(GIVEN, sets_cluster=True),
            "argocd sets externalTrafficPolicy to Local again",
        ),
        (service(asks_reevaluation=True), GIVEN, "purelb.io/re-evaluate is set again"),
        (new(), GIVEN, "its annotations or its addresses are removed"),
        (new(), Release(), "its annotations or its addresses are removed"),
    ],
    ids=["policy", "re-evaluate", "marks", "released"],
)
def test_what_else_is_undone_is_named(left, outcome, words):
    assert (
        dispute(left, outcome, left.addresses)[0].startswith(words)
        or words in (dispute(left, outcome, left.addresses)[0])
    )


def test_without_a_note_the_writer_is_another_program():
    assert kept_local(service())[0].startswith("another program sets")

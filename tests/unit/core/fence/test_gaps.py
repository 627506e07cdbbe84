# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Whether a program of ours is the first one, and how it gets there."""

from __future__ import annotations

import pytest

from purelb.core.fence.filters import HANDLES, Filter
from purelb.core.fence.gaps import handle_for, is_first_alone

FIRST, SECOND = HANDLES
OURS = Filter(FIRST, "bpf", "purelb", 7)
AGAIN = Filter(SECOND, "bpf", "purelb", 8)
OTHER = Filter(1, "bpf", "cil_from_netdev", 9)


@pytest.mark.parametrize(
    ("filters", "is_right"),
    [
        ((OURS,), True),
        ((OURS, OTHER), True),
        ((), False),
        ((OTHER,), False),
        ((OTHER, OURS), False),
        ((OURS, AGAIN), False),
        ((AGAIN,), False),
        ((Filter(FIRST, "u32"),), False),
    ],
    ids=["alone", "before", "none", "not ours", "behind", "twice", "another id", "another kind"],
)
def test_the_first_and_the_only_one_of_ours(filters, is_right):
    assert is_first_alone(filters, 7) is is_right


@pytest.mark.parametrize(
    ("filters", "handle"),
    [
        ((), FIRST),
        ((OTHER,), FIRST),
        ((OURS, OTHER), FIRST),
        ((AGAIN,), SECOND),
        ((OTHER, OURS), SECOND),
        ((OTHER, AGAIN), FIRST),
        ((OTHER, OURS, AGAIN), FIRST),
    ],
    ids=["none", "other", "in place", "in place again", "overtake", "back", "both behind"],
)
def test_the_handle_that_comes_first(filters, handle):
    assert handle_for(filters) == handle

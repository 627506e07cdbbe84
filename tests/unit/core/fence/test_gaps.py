# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Whether a program of ours is the first one, and what is said if it is not."""

from __future__ import annotations

import errno

import pytest

from purelb.core.fence.filters import HANDLES, Filter
from purelb.core.fence.gaps import (
    EXACT,
    Gap,
    fence_text,
    gap_of,
    handle_for,
    is_first_alone,
    parse_gaps,
    remedy_of,
    without_fence,
)

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


@pytest.mark.parametrize("code", [errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EINVAL])
def test_what_the_kernel_refuses(code):
    is_forbidden = code in (errno.EPERM, errno.EACCES)
    assert gap_of(code) is (Gap.FORBIDDEN if is_forbidden else Gap.UNSUPPORTED)


@pytest.mark.parametrize(
    ("problem", "gaps", "text"),
    [
        (None, {}, EXACT),
        (Gap.FORBIDDEN, {"eth0": Gap.BEHIND}, "forbidden"),
        (None, {"eth1": Gap.BEHIND, "eth0": Gap.REFUSED}, "eth0=refused,eth1=behindOther"),
    ],
    ids=["whole", "none", "gaps"],
)
def test_what_a_lease_says(problem, gaps, text):
    assert fence_text(problem, gaps) == text
    expected = (("", problem),) if problem else tuple(sorted(gaps.items()))
    assert parse_gaps(text) == expected


def test_a_lease_names_eight_interfaces_at_most():
    many = {f"eth{n}": Gap.BEHIND for n in range(9)}
    assert len(parse_gaps(fence_text(None, many))) == 8
    long = ",".join(f"eth{n}=refused" for n in range(99))
    assert len(parse_gaps(long)) == 8


@pytest.mark.parametrize("text", ["", "exact", "eth0=another", "=", "x=y=z"])
def test_what_is_not_known_is_skipped(text):
    assert parse_gaps(text) == ()


@pytest.mark.parametrize("gap", Gap, ids=[gap.value for gap in Gap])
def test_each_gap_has_a_text_and_a_remedy(gap):
    gaps = (("eth7", gap), ("eth8", Gap.REFUSED))
    assert "eth7" in without_fence(gaps)
    assert "INTERFACE" not in remedy_of(gaps)
    assert remedy_of(gaps)[0].isupper()

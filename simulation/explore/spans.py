# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Times in seconds, each with its begin and its end: what is left of some without others."""

from __future__ import annotations

from collections.abc import Iterable

Span = tuple[float, float]
FOR_EVER = float("inf")


def without(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return what is left of these times outside the others."""
    left = list(spans)
    for begin, end in others:
        parts = [((b, min(e, begin)), (max(b, end), e)) for b, e in left]
        left = [(b, e) for both in parts for b, e in both if b < e]
    return left


def common(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """Return the times that are in one of these and in one of the others, which do not overlap."""
    others = list(others)
    pairs = ((max(b, begin), min(e, end)) for b, e in spans for begin, end in others)
    return [(b, e) for b, e in pairs if b < e]


def seconds(spans: Iterable[Span]) -> float:
    """Return how long these times are together; they do not overlap."""
    return sum(end - begin for begin, end in spans)


def longest(spans: Iterable[Span]) -> float:
    """Return how long the longest of these times is."""
    return max((end - begin for begin, end in spans), default=0.0)


def note(spans: list[Span], now: float, *, is_so: bool) -> None:
    """Note in the times in which something is so whether it is from now on."""
    was_so = bool(spans) and spans[-1][1] == FOR_EVER
    if was_so and not is_so:
        spans[-1] = spans[-1][0], now
    elif is_so and not was_so:
        spans.append((now, FOR_EVER))

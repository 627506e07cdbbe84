# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which kinds of faults are drawn together, and how often."""

from __future__ import annotations

from collections.abc import Mapping


def _each(names: str) -> tuple[str, ...]:
    return tuple(names.split())


# What is likely to matter together. The kinds of most schedules are drawn from one of these. In an
# outage it takes the most at once to break something, so these are drawn more often.
FAMILIES: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "one node, the API": (
        1,
        _each("refused dropped stopped taint leaves killed crashed joins label proxy"),
    ),
    "all nodes, the API": (
        1,
        _each("outage silence staggered first-back frozen joins leaves killed two-dropped"),
    ),
    "who is frozen in an outage": (3, _each("frozen first-back silence")),
    "who asks whom in an outage": (3, _each("all-but-one pair one-way")),
    "slow": (1, _each("slow-writes one-slow-writes slow-answers flapping lost killed off joins")),
    "lists": (1, _each("slow-lists stall-leases old-lists one-flapping joins")),
    "a server that is back": (3, _each("slow-return scale-up service-stays")),
    "new nodes": (1, _each("slow-return scale-up joins frozen")),
    "watches": (
        1,
        _each("stall-all stall-nodes stall-services lagging taint joins node-deleted label labels"),
    ),
    "silent watches": (1, _each("silent-services service-stays pool type crashed taint")),
    "clocks": (1, _each("wall rate paused suspended joins joins-astray silence frozen")),
    "machines": (
        1,
        _each(
            "stopped-adding stopped-removing stopped-reading busy-kernel starved frozen off killed "
            "silence refused stopped-guarding stopped-opening filters-gone"
        ),
    ),
    "kernels": (
        1,
        _each(
            "late-answer unreadable torn-dump lost-news leaves unplugged service crowd readdressed "
            "mistaken off proxies filters-gone"
        ),
    ),
    "servers": (1, _each("errors unauthorized too-many lagging restored node-deleted lost joins")),
    "users": (
        1,
        _each("leader-killed type pool service service-stays endpoints unselected taint label"),
    ),
    "operators": (
        1,
        _each("outage timings keys endpoints unselected taint joins leaves dropped frozen lost"),
    ),
    "the wire": (1, _each("cut one-way isolated split lossy unplugged lost joins leaves outage")),
    "the control plane": (
        2,
        _each("control-plane forgetful replicas all-killed all-crashed frozen joins taint"),
    ),
    "allocators": (
        2,
        _each(
            "leader-killed leader-cut leader-slow leader-frozen leader-paused lock-deleted "
            "service-stays service type pool"
        ),
    ),
}

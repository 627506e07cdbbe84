# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Why there is no fence on an interface that needs one, and what is done about it."""

from __future__ import annotations

from enum import Enum
from typing import List, Mapping, Optional, Sequence, Tuple

from .filters import HANDLES, Filter


class Gap(str, Enum):
    """Why a node, or an interface that announces, is not fenced.

    Of a node: OFF: not wanted. FORBIDDEN: the kernel does not let the agent. UNSUPPORTED: it has no
    such programs. FULL: it has more addresses than fit. Of an interface: NOT_ETHERNET: its frames
    are not such that the programs know. OTHER_QDISC: it has the qdisc `ingress`, with which there
    is no room for filters of both directions. BEHIND: another program runs before ours and may end
    what comes after it. REFUSED: the kernel says so.
    """

    OFF = "off"
    FORBIDDEN = "forbidden"
    UNSUPPORTED = "unsupported"
    FULL = "full"
    NOT_ETHERNET = "notEthernet"
    OTHER_QDISC = "otherQdisc"
    BEHIND = "behindOther"
    REFUSED = "refused"


# What a Lease says of a node whose addresses fall silent exactly.
EXACT = "exact"
# An annotation names no more interfaces: one is enough for a node to have no whole fence.
_MOST_GAPS = 8
# EPERM, EACCES: asm-generic/errno-base.h.
_FORBIDDEN = frozenset({1, 13})


def gap_of(code: int) -> Gap:
    """Return why a node has no fence whose kernel refused it with this errno."""
    return Gap.FORBIDDEN if code in _FORBIDDEN else Gap.UNSUPPORTED


def fence_text(problem: Optional[Gap], gaps: Mapping[str, Gap]) -> str:
    """Return what a Lease says of the fence; `problem` is of the node, `gaps` of interfaces."""
    if problem is not None:
        return problem.value
    if not gaps:
        return EXACT
    return ",".join(f"{name}={gap.value}" for name, gap in sorted(gaps.items())[:_MOST_GAPS])


def parse_gaps(text: str) -> Tuple[Tuple[str, Gap], ...]:
    """Return what a Lease says of the fence: interfaces (empty: of the node) and their gaps.

    What is not known is skipped: a Lease is read by agents and modules of other versions.
    """
    found: List[Tuple[str, Gap]] = []
    for entry in text.split(",")[:_MOST_GAPS]:
        name, _equals, value = entry.rpartition("=")
        if value in _GAPS:
            found.append((name, _GAPS[value]))
    return tuple(found)


_GAPS = {gap.value: gap for gap in Gap}
# What is wrong, and what to do, for events and for the audit.
_OFF = "or set purelb_install_fence: false"
_TYPE = "purelb_install_selinux_type: spc_t"
# Their default seccomp profiles allow bpf() to who has CAP_BPF.
_RUNTIMES = "containerd to 1.6.9 or later, CRI-O to 1.31"
_REMOVE = "tc qdisc del dev INTERFACE ingress"
_TEXTS = {
    Gap.OFF: ("is switched off", "set purelb_install_fence: true"),
    Gap.FORBIDDEN: (
        "the kernel does not let the agent load programs",
        f"where SELinux is enforced, set {_TYPE}; update {_RUNTIMES}; {_OFF}",
    ),
    Gap.UNSUPPORTED: (
        "the kernel has no such programs",
        f"update it to Linux 5.8 or later, with NET_CLS_BPF and NET_SCH_INGRESS; {_OFF}",
    ),
    Gap.FULL: ("the node has more addresses than fit", "spread them over more nodes"),
    Gap.NOT_ETHERNET: (
        "it has no Ethernet frames",
        f"let localInterface of the LBNodeAgent select another one; {_OFF}",
    ),
    Gap.OTHER_QDISC: (
        "it has the qdisc ingress of another program",
        f"let that program use the qdisc clsact, and remove it ({_REMOVE}); {_OFF}",
    ),
    Gap.BEHIND: (
        "another program runs before it (tcx, as Cilium attaches, or a filter of a lower priority)",
        f"see tc filter show dev INTERFACE egress, and bpftool net; {_OFF}",
    ),
    Gap.REFUSED: ("the kernel refused it", "see fenceFailed in the agent's log"),
}


def without_fence(gaps: Sequence[Tuple[str, Gap]]) -> str:
    """Return a sentence about what is not fenced, without its end."""
    causes = (f"{name}: {_TEXTS[gap][0]}" if name else _TEXTS[gap][0] for name, gap in gaps)
    return (
        "Addresses of this node end with their lifetimes, up to a second late, as the fence does "
        f"not stand ({'; '.join(causes)})"
    )


def remedy_of(gaps: Sequence[Tuple[str, Gap]]) -> str:
    """Return what to do about it."""
    name, gap = gaps[0]
    text = _TEXTS[gap][1].replace("INTERFACE", name)
    return text[0].upper() + text[1:]


def is_first_alone(filters: Sequence[Filter], program: Optional[int]) -> bool:
    """Whether this program of ours, by its id, runs before all others and is the only one."""
    ours = [found for found in filters if found.is_ours]
    return len(ours) == 1 and filters[0] is ours[0] and ours[0].program == program


def handle_for(filters: Sequence[Filter]) -> int:
    """Return the handle under which a program of ours stays, or gets, before all other filters.

    `filters`: those of a hook, in the order in which they run. Among those of one priority the
    newest is the first, so one that others have overtaken gets the other handle.
    """
    if filters and filters[0].is_ours and filters[0].handle in HANDLES:
        return filters[0].handle
    taken = {found.handle for found in filters if found.is_ours}
    return next((handle for handle in HANDLES if handle not in taken), HANDLES[0])

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The content of the announcing annotations of a Service.

Each agent writes its own entries and keeps those of live peers, so the annotation converges in any
order of writes. For an address that only one node holds, the new holder removes the old entry. An
agent that is not live itself has no entries: it may announce remote addresses, but the others would
remove what it writes, and it what they write. One that holds by agreement with its neighbors, as it
cannot renew its Lease, does not know who is live.
"""

from __future__ import annotations

from typing import FrozenSet, Iterable, Optional, Tuple

from ..model import Announcement


def merge_announcing(
    current: Iterable[Announcement],
    own: Iterable[Announcement],
    *,
    node: str,
    live_nodes: Optional[FrozenSet[str]],
    alone: bool,
) -> Tuple[Announcement, ...]:
    """Return the entries with this node's own, and those of live peers that do not conflict.

    `live_nodes`: None if that is not known; no entry of another node is removed then, and none
    added. `alone`: only one node holds each address, so its entry replaces all others.
    """
    if live_nodes is None:
        has = frozenset(own)
        return tuple(e for e in current if e.node != node or e in has)
    mine = tuple(own) if node in live_nodes else ()
    taken = {entry.address for entry in mine} if alone else set()
    others = (
        entry
        for entry in current
        if entry.node != node and entry.node in live_nodes and entry.address not in taken
    )
    return tuple(sorted((*others, *mine), key=str))


def format_announcing(entries: Iterable[Announcement]) -> str:
    """Return the text of the annotation."""
    return " ".join(str(entry) for entry in entries)

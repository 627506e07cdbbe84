# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the announcing annotations of a Service should say.

Each agent writes its own entries and leaves those of live peers alone, so that the annotation
converges whichever of them writes last. An entry for an address that lives on one node only goes
when another node has that address.
"""

from __future__ import annotations

from typing import Iterable, Tuple

from ..model import Announcement


def merge_announcing(
    current: Iterable[Announcement],
    own: Iterable[Announcement],
    *,
    node: str,
    live_nodes: frozenset[str],
    alone: bool,
) -> Tuple[Announcement, ...]:
    """Entries after this node has put its own in: others' stay if live and not contradicted.

    `alone`: an address is on one node only, so that who has it contradicts all others.
    """
    mine = tuple(own)
    taken = {entry.address for entry in mine} if alone else set()
    others = (
        entry
        for entry in current
        if entry.node != node and entry.node in live_nodes and entry.address not in taken
    )
    return tuple(sorted((*others, *mine), key=str))


def format_announcing(entries: Iterable[Announcement]) -> str:
    """Text of the annotation."""
    return " ".join(str(entry) for entry in entries)

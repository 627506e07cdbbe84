# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which addresses on a node are left over: they were put there by a right that has ended.

The fence keeps them silent, and other nodes may have taken them. So they count as not held, and are
removed before the fence opens again.
"""

from __future__ import annotations

from enum import Enum
from typing import FrozenSet, Iterable, Tuple

from ..model import Address, InterfaceAddress
from ..names import FENCED_PROTOCOL, WITNESS_PROTOCOL

# An address on an interface: index of the link, address.
Place = Tuple[int, Address]


class Opened(Enum):
    """Whether the fence of this agent has been open: by it, an agent knows its own right.

    NOT_YET: it has just started, or has no fence. EVER_SINCE: from when it opened until now. SHUT:
    until the right ended. The clock for that passes while the machine sleeps, with which the
    lifetimes stand still.
    """

    NOT_YET = "not yet"
    EVER_SINCE = "ever since"
    SHUT = "shut"


def left_over(ours: Iterable[InterfaceAddress], opened: Opened) -> FrozenSet[Place]:
    """Return those of our addresses on real interfaces whose right has ended.

    An agent that has just started sees it by the witness, whose lifetime is over before the right
    is; without one nothing that outlasts its right can be trusted. Later the agent knows it itself,
    as another program may have removed the witness.
    """
    if opened is Opened.EVER_SINCE:
        return frozenset()
    found = tuple(ours)
    if opened is Opened.NOT_YET:
        if any(held.protocol == WITNESS_PROTOCOL for held in found):
            return frozenset()
        found = tuple(held for held in found if held.protocol == FENCED_PROTOCOL)
    return frozenset((held.link, held.address) for held in found)

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
from ..names import FENCED_PROTOCOL

# An address on an interface: index of the link, address.
Place = Tuple[int, Address]


class Opened(Enum):
    """Whether the fence of this agent has been open: by it, an agent knows its own right.

    NOT_YET: it has just started, or has no fence. BEFORE: the same, and that of the agent before it
    is open. EVER_SINCE: from when it opened until now. SHUT: until the right ended. The clock for
    that passes while the machine sleeps, with which the lifetimes stand still.
    """

    NOT_YET = "not yet"
    BEFORE = "before"
    EVER_SINCE = "ever since"
    SHUT = "shut"


def left_over(ours: Iterable[InterfaceAddress], opened: Opened) -> FrozenSet[Place]:
    """Return those of our addresses on real interfaces whose right has ended.

    To an agent that has just started, that is all that outlasts its right, unless it knows that the
    fence of the agent before it is open.
    """
    if opened in (Opened.BEFORE, Opened.EVER_SINCE):
        return frozenset()
    return frozenset(
        (held.link, held.address)
        for held in ours
        if opened is Opened.SHUT or held.protocol == FENCED_PROTOCOL
    )

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Why there is no fence on an interface that needs one, and what is done about it."""

from __future__ import annotations

from enum import Enum
from typing import Optional, Sequence

from .filters import HANDLES, Filter


class Gap(str, Enum):
    """Why an interface is not fenced, as the log names it.

    NOT_ETHERNET: its frames are not such that the programs know. OTHER_QDISC: it has the qdisc
    `ingress`, with which there is no room for filters of both directions. BEHIND: another program
    runs before ours and may end what comes after it. REFUSED: the kernel says so.
    """

    NOT_ETHERNET = "notEthernet"
    OTHER_QDISC = "otherQdisc"
    BEHIND = "behindOther"
    REFUSED = "refused"


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

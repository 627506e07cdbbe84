# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Reports to the own Node what keeps addresses off it, what that did, and that it ended."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from purelb.core.addresses import listed
from purelb.core.election.members import Standing
from purelb.core.model import Address, Reason
from purelb.core.names import DRAINING_TAINTS, EXCLUDE_LABEL, SPOT_TAINT_KEY
from purelb.core.node.decisions import Decisions, VipDecision
from purelb_agent.kube.events import EventReason, Events, ObjectReference
from purelb_agent.kube.store import NodeStore
from purelb_agent.runtime import log

# Seconds in which the nodes that won the addresses ask for them.
_PATIENCE = 5.0
# Seconds without a change after which a list of what stays is whole: addresses come back one by one
# when the last better node is marked too.
_SETTLED = 1.0
# The taints that count even for an address that no other node can have.
_OBEYED = ", ".join(key for key in DRAINING_TAINTS if key != SPOT_TAINT_KEY)


class StandingEvents:
    """Records an event for each change; remembers what was reported."""

    def __init__(self, events: Events, store: NodeStore, node: str) -> None:
        self._events = events
        self._store = store
        self._node = node
        # What keeps addresses away, and the event about it.
        self._reported: tuple[str, EventReason] = ("", "AddressesRestored")
        # When other nodes have had their time to ask for what they won; None if they have all.
        self._asked_by: float | None = None
        # What stays as no better node can have it, and when that list is whole.
        self._kept: Sequence[Address] = ()
        self._kept_by = 0.0
        # When it is to be reported that they did not; None if it was, or need not be.
        self.next_at: float | None = None

    def report(
        self, decisions: Decisions, announced: Iterable[VipDecision], *, done: bool, now: float
    ) -> None:
        """Report the result of a cycle, once each.

        `decisions`: those that were acted on, so the addresses have left by now. `announced`: what
        this node has nevertheless. `done`: the kernel refused nothing.
        """
        standing, taint = decisions.snapshot.standing, decisions.snapshot.taint
        cause = f"taint {taint}" if taint else ""
        if standing is Standing.EXCLUDED:
            cause = f"label {EXCLUDE_LABEL}"
        here = tuple(announced)
        asked = [v.vip.address for v in here if v.reason is Reason.KEPT]
        kept = [v.vip.address for v in here if v.reason is not Reason.KEPT]
        is_first = standing is Standing.FIRST
        waits = self._until_left([] if is_first else asked, now), self._until_settled(kept, now)
        pending = (until for until in waits if until and now < until)
        self.next_at = None if is_first else next(pending, None)
        kind = "Normal" if standing is Standing.EXCLUDED else "Warning"
        if is_first:
            self._record(
                cause,
                "AddressesRestored",
                "Nothing keeps addresses away any more: this node takes part in elections",
            )
        elif standing is Standing.ILL and not taint:
            self._record(
                cause,
                "ServiceProxyDown",
                "kube-proxy does not answer on this node, so other nodes have the addresses of "
                "LoadBalancer Services, as far as they can",
                "Warning",
            )
        elif not done:
            message = f"Not all addresses could be withdrawn ({cause}): see the agent's log"
            self._record(cause, "AddressesNotDrained", message, "Warning")
        elif self.next_at is not None:
            # What stays is known when the rest has left, or has come back.
            return
        elif asked:
            message = f"No other node has asked for {listed(asked)} yet ({cause})"
            self._record(cause, "AddressesNotDrained", message, "Warning")
        elif kept:
            message = (
                f"No better node can have {listed(kept)}, so this node keeps that in spite of the "
                f"{cause}. A taint that makes it leave: {_OBEYED}"
            )
            self._record(cause, "AddressesNotDrained", message, kind)
        else:
            message = f"All addresses of LoadBalancer Services left this node ({cause})"
            self._record(cause, "AddressesDrained", message)

    def _until_left(self, asked: Sequence[Address], now: float) -> float | None:
        """Return when other nodes have had their time to ask for what they won."""
        if not asked:
            self._asked_by = None
        elif self._asked_by is None:
            self._asked_by = now + _PATIENCE
        return self._asked_by

    def _until_settled(self, kept: Sequence[Address], now: float) -> float | None:
        """Return when the list of what no better node can have is whole."""
        if kept != self._kept:
            self._kept, self._kept_by = kept, now + _SETTLED
        return self._kept_by if kept else None

    def _record(self, cause: str, reason: EventReason, message: str, kind: str = "Normal") -> None:
        if (cause, reason) == self._reported:
            return
        self._reported = cause, reason
        about = ObjectReference("Node", self._node, uid=self._store.node_uid)
        self._events.record(about, reason, message, kind=kind)
        log.info("standing", node=self._node, cause=cause, reason=reason)

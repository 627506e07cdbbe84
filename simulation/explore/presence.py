# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""How long each address was on no node, or where no host found it; and how long it may be.

What a fault may cost is written down with its kind (`faults.KINDS`), and adds up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TypeVar

from purelb.core.model import Address
from purelb.core.settings import LeaseTiming
from simulation.cluster import Cluster
from simulation.explore.able import Excuse, Moment, State
from simulation.explore.fault import Fault, Kind
from simulation.explore.spans import FOR_EVER, Span, common, longest, note, seconds, without
from simulation.explore.troubles import Troubles
from simulation.history import History, Holders
from simulation.shape import AUTO
from simulation.time.timeline import MICROSECONDS

# Seconds. A crash, at worst (the contract); counted from the last change of what is wrong.
TAKEOVER = 20.0
# An address that changes hands, and what a kernel checks before it uses an IPv6 address.
_MOVES, _DETECTION = 0.3, 2.1
_ROUNDED = 0.001
# A host misses an announcement. It is repeated, by the schedule of a configuration.
_MISLED = 2.0
# A Lease that is not short, and with it the time for which others wait for its node.
DURATION = LeaseTiming().duration
# After two nodes had an address, or frames got lost, hosts are told again with the next probe
# (docs/design.md).
_TOLD_AGAIN = 31.0
# Of short Leases the last renewal may be so long ago, which is too long for an agreement of nodes
# that lose the API over more than this.
_SHORT, _SPREADS = 3.0, 1.0
T = TypeVar("T")


class Presence:
    """Follows a cluster from now on; times are in seconds after that.

    `faults`: what will happen, each with its kind; what else happens may cost nothing. `free`: when
    each address belonged to no Service. `longest`: for how many seconds a Lease was valid at most.
    `excused`: for how many seconds each excuse was used, of the address that used it most.
    """

    def __init__(
        self,
        cluster: Cluster,
        history: History,
        troubles: Troubles,
        free: dict[Address, list[Span]],
        faults: Sequence[tuple[Fault, Kind]],
        longest: Callable[[], float],
    ) -> None:
        self.excused: dict[str, float] = {}
        self._cluster, self._history, self._troubles = cluster, history, troubles
        self._free, self._faults, self._longest = free, faults, longest
        self._began = cluster.timeline.now
        # When no host of a segment, by its number, or of any (None) reached a node, and when some
        # host did not, by the node.
        self._apart: dict[tuple[str, int | None], list[Span]] = defaultdict(list)
        self._missed: dict[str, list[Span]] = defaultdict(list)
        for segment in cluster.segments:
            segment.paths.changed.append(self._look)

    def _after(self, moment: int) -> float:
        return (moment - self._began) / MICROSECONDS

    @property
    def _now(self) -> float:
        return self._after(self._cluster.timeline.now)

    def _look(self) -> None:
        for name, node in self._cluster.nodes.items():
            connects = {
                number: [segment.paths.connects(name, host.name) for host in segment.hosts]
                for number, segment in enumerate(self._cluster.segments)
                if segment.link_of(node.kernel)
            }
            for number, found in connects.items():
                note(self._apart[name, number], self._now, is_so=not any(found))
            everywhere = [each for found in connects.values() for each in found]
            note(self._apart[name, None], self._now, is_so=not any(everywhere))
            note(self._missed[name], self._now, is_so=not all(everywhere))

    def unheld(self, addresses: Iterable[Address]) -> Iterator[str]:
        """Yield addresses that were on no node for longer than the faults may cost.

        And those that were for too long although one could have them, and nothing changed.
        """
        allowed = self._allowed()
        for address in addresses:
            left: list[Span] = []
            before: Holders = frozenset()
            for span, holders in self._dated(self._history.spans(address)):
                if not holders:
                    left += self._unexcused(address, without([span], self._free[address]), before)
                before = holders or before
            if seconds(left) > allowed:
                yield (
                    f"{address} was on no node for {seconds(left):.2f} s in all, from "
                    f"{left[0][0]:.2f} s on, and that may be {allowed:.1f} s"
                )
            quiet = max(map(self._quiet, left), default=0.0)
            if quiet > TAKEOVER:
                yield f"{address} was on no node for {quiet:.1f} s while nothing changed"

    def on_no_node(self, addresses: Iterable[Address]) -> tuple[float, ...]:
        """Return for how long each address of a Service was on no node, excused or not."""
        spans = {address: self._dated(self._history.spans(address)) for address in addresses}
        return tuple(
            seconds(without([span for span, on in lasted if not on], self._free[address]))
            for address, lasted in spans.items()
        )

    def _unexcused(self, address: Address, spans: list[Span], before: Holders) -> list[Span]:
        """Return when an address had to be on a node; `before`: which nodes had it last."""
        states = self._states(address)
        for number, (piece, (excuse, *_)) in enumerate(states):
            if excuse is None:
                continue
            if excuse is Excuse.OUTAGE and not self._may_let_go(before, states[: number + 1]):
                continue
            self._use(excuse.value, seconds(common(spans, [piece])))
            spans = without(spans, [piece])
        return spans

    def waited(self, waited: dict[str, list[Span]]) -> Iterator[str]:
        """Yield Services that had no address for too long while an allocator ran, or at the end."""
        for name, spans in waited.items():
            quiet = max(map(self._longest_allocated, spans), default=0.0)
            if quiet > TAKEOVER or (spans and spans[-1][1] == FOR_EVER):
                since = f"from {spans[-1][0]:.2f} s on"
                yield f"{name} waited for an address for {quiet:.1f} s, {since}"

    def unanswered(self, addresses: Iterable[Address]) -> Iterator[str]:
        """Yield addresses that a node has for which no host gets an answer, and misled hosts."""
        for address in addresses:
            held = [(span, on) for span, on in self._dated(self._history.spans(address)) if on]
            heard = self._dated(self._history.heard(address))
            silent = [span for span, by in heard if not by]
            number = self._cluster.number_of(address)
            for span, on in held:
                apart = [s for name in on for s in self._apart[name, number]]
                found = common([span], silent)
                self._use("no host reaches the holder", seconds(common(found, apart)))
                late = longest(without(found, apart))
                if late > (_DETECTION if address.version == 6 else _ROUNDED):  # noqa: PLR2004 - the version of IP
                    names = " and ".join(sorted(on))
                    yield f"{address} on {names} answered no host for {late:.2f} s"
            yield from self._misled(address)

    def _misled(self, address: Address) -> Iterator[str]:
        misled = [span for span, is_so in self._dated(self._history.misled(address)) if is_so]
        on_two = [span for span, by in self._dated(self._history.heard(address)) if len(by) > 1]
        missed = [span for spans in self._missed.values() for span in spans]
        left = misled
        for excuse, causes in (
            ("two nodes had answered hosts", on_two),
            ("a host did not reach a node", missed),
        ):
            told = [(begin, end + _TOLD_AGAIN) for begin, end in causes]
            self._use(excuse, seconds(left) - seconds(without(left, told)))
            left = without(left, told)
        late = seconds(left)
        # Of one that has put an address and cannot announce it, the next agent probes it.
        may_be_untold = any(kind.halts for _fault, kind in self._faults)
        if late > (_TOLD_AGAIN if may_be_untold else _MISLED):
            yield f"hosts looked for {address} at a node without it for {late:.2f} s"

    def _allowed(self) -> float:
        """Return for how long an address may be on no node because of the faults, in all."""
        slowest = max((f.value for f, kind in self._faults if kind.is_slow), default=0.0)
        with_others = len(self._faults) > 1
        costs = (
            self._in_proportion(k.away[with_others]) + slowest * k.disturbs
            for _f, k in self._faults
        )
        return _MOVES + sum(costs)

    def _in_proportion(self, cost: float) -> float:
        """Return a cost, which is that with Leases of 10 s, for the longest one of this run."""
        return cost - DURATION + self._longest() if cost > DURATION else cost

    def _may_let_go(self, holders: Holders, states: list[tuple[Span, State]]) -> bool:
        """Whether holders may withdraw in an outage: they were disturbed, or most nodes were.

        Shortly before it counts as well, as they had hardly recovered. If only some nodes were
        without the API until the outage, these have rightly withdrawn: all of the segment if no
        other one reached the API; any disturbed node may be the one whose Lease the others have to
        wait for then. Where Leases are short, an outage that reaches the nodes one after the other
        is as if only some had it. `states`: up to the outage's.
        """
        end = states[-1][0][1]
        began, was_split, was_cut_off, members = before_outage(states)
        if self._cluster.shape.timing == AUTO and _split_for(states, began) > _SPREADS:
            return True
        # Who could not renew since then has not recovered.
        recent = 0.0 if was_split else began - TAKEOVER
        disturbed = {
            name
            for fault, kind in self._faults
            if kind.disturbs and fault.at < end
            if not fault.seconds or fault.at + fault.seconds > recent
            for name in fault.nodes
        }
        if not holders or holders & disturbed or 2 * len(members - disturbed) <= len(members):
            return True
        return was_split and (bool(disturbed) or was_cut_off)

    def _states(self, address: Address) -> list[tuple[Span, State]]:
        """Return what was so on the segment of an address, and when."""
        number = self._cluster.number_of(address) or 0
        return [(piece, moment.states[number]) for piece, moment in self._pieces()]

    def _pieces(self) -> list[tuple[Span, Moment]]:
        moments = [*self._troubles.moments, Moment(self._cluster.timeline.now)]
        return [
            ((self._after(first.at), self._after(last.at)), first)
            for first, last in pairwise(moments)
        ]

    def _quiet(self, span: Span) -> float:
        """Return for how long of a time nothing changed."""
        return longest(common([span], (piece for piece, _moment in self._pieces())))

    def _longest_allocated(self, span: Span) -> float:
        """Return for how long of a time nothing changed, and an allocator ran."""
        pieces = (piece for piece, moment in self._pieces() if moment.allocates)
        return longest(common([span], pieces))

    def _use(self, excuse: str, used: float) -> None:
        if used:
            self.excused[excuse] = max(used, self.excused.get(excuse, 0.0))

    def _dated(self, lasted: list[tuple[float, T]]) -> list[tuple[Span, T]]:
        """Return each with its begin and end; they follow each other, up to now."""
        since, dated = self._now - sum(each for each, _seen in lasted), []
        for each, seen in lasted:
            dated.append(((since, since + each), seen))
            since += each
        return dated


def _split_for(states: list[tuple[Span, State]], began: float) -> float:
    """Return for how long only some nodes had no API within a short Lease before an outage."""
    before = [(began - _SHORT, began)]
    return seconds(common(before, (span for span, state in states if state.is_split)))


def before_outage(states: list[tuple[Span, State]]) -> tuple[float, bool, bool, frozenset[str]]:
    """Return when the outage at the end began, what was before it, and who had a Lease.

    That is whether it began later for some nodes, and whether these were of other segments only.
    """
    (_began, began), (_excuse, _is_split, members) = states[-1]
    for (begin, until), state in reversed(states):
        if state.excuse is Excuse.OUTAGE and until == began:
            began, members = begin, state.members
        elif state.is_split:
            is_late = until > began - DURATION
            return began, is_late, state.excuse is Excuse.CUT_OFF, members
    return began, False, False, members

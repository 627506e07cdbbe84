# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Two nodes that ask each other for one address: every order of their steps and messages.

There is no time. Both are alive and count each other; whether either wants the address, or whether
it holds it, changes at any moment. Questions and answers arrive in any order, or never. A node may
enter another epoch with what it holds, as one does whose agent is restarted or whose Lease lists
another subnet; the other one sees that later.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from purelb.core.holding.permissions import PermissionAnswer, PermissionQuestion, Permissions
from tests.support.rule.records import IT, VIP

_NO: frozenset[object] = frozenset()


@dataclass(frozen=True)
class Side:
    """One of the two. `sees`: the epoch in which it knows the other one to be."""

    permissions: Permissions
    sees: str
    holds: bool = False


@dataclass(frozen=True)
class Talk:
    """Both sides, and what is on its way.

    `questions` and `epochs`: how many more there are.
    """

    sides: tuple[Side, Side]
    asked: tuple[PermissionQuestion, ...] = ()
    answered: tuple[tuple[int, PermissionAnswer], ...] = ()
    questions: int = 3
    epochs: int = 2

    def key(self) -> tuple[object, ...]:
        """Return what decides how the talk continues."""
        sides = (
            (s.sees, s.holds, s.permissions.epoch, *s.permissions.pairs.items(),
             *s.permissions.asked.items())
            for s in self.sides
        )  # fmt: skip
        return (
            *sides,
            frozenset(self.asked),
            frozenset(self.answered),
            self.questions,
            self.epochs,
        )

    def with_side(self, i: int, side: Side, **changes: object) -> Talk:
        """Return the talk after a change of one side, which withdraws what it is denied."""
        peers = [self.sides[1 - i].permissions.node]
        side = replace(side, holds=side.holds and not side.permissions.is_denied(VIP, peers))
        sides = (side, self.sides[1]) if i == 0 else (self.sides[0], side)
        return replace(self, sides=sides, **changes)  # type: ignore[arg-type]

    def steps(self) -> Iterator[Talk]:
        """Yield the talk after each step that may come next."""
        for i in (0, 1):
            yield from self._of_side(i)
        for question in self.asked:
            rest = tuple(q for q in self.asked if q is not question)
            yield from (self._arrives(question, rest, wanted) for wanted in (IT, _NO))
        for i, answer in self.answered:
            side = self.sides[i]
            heard = side.permissions.heard(self.sides[1 - i].permissions.node, answer)
            rest_answers = tuple(a for a in self.answered if a != (i, answer))
            yield self.with_side(i, replace(side, permissions=heard), answered=rest_answers)

    def _of_side(self, i: int) -> Iterator[Talk]:
        side, other = self.sides[i], self.sides[1 - i]
        peer, permissions = other.permissions.node, side.permissions
        if side.holds:
            yield self.with_side(i, replace(side, holds=False))
        elif not permissions.lacking(VIP, [peer]):
            yield self.with_side(i, replace(side, holds=True))
        if side.sees != other.permissions.epoch:
            among = permissions.among({peer: other.permissions.epoch})
            yield self.with_side(i, replace(side, permissions=among, sees=other.permissions.epoch))
        if self.epochs:
            # Who writes a Lease sees all that was written before.
            entered = permissions.entered(f"{permissions.node}{self.epochs}")
            yield self.with_side(
                i, replace(side, permissions=entered, sees=other.permissions.epoch),
                epochs=self.epochs - 1,
            )  # fmt: skip
        for question in permissions.asked.values():
            gave_up = permissions.gave_up(peer, question.nonce)
            yield self.with_side(i, replace(side, permissions=gave_up))
        if self.questions:
            held = IT if side.holds else _NO
            for wants, moves in ((_NO, _NO), (IT, _NO), (IT, IT)):
                after, question = permissions.ask(
                    peer, side.sees, nonce=str(self.questions), holds=held, wants=wants, moves=moves
                )
                yield self.with_side(
                    i, replace(side, permissions=after),
                    asked=(*self.asked, question), questions=self.questions - 1,
                )  # fmt: skip

    def _arrives(
        self,
        question: PermissionQuestion,
        rest: tuple[PermissionQuestion, ...],
        wanted: frozenset[object],
    ) -> Talk:
        i = 1 if self.sides[0].permissions.node == question.asker else 0
        side = self.sides[i]
        permissions, answer = side.permissions.answer(
            question, epochs={question.asker: side.sees},
            holds=IT if side.holds else _NO, wanted=wanted,
        )  # fmt: skip
        return self.with_side(
            i, replace(side, permissions=permissions),
            asked=rest, answered=(*self.answered, (1 - i, answer)),
        )  # fmt: skip

    @property
    def is_safe(self) -> bool:
        """Whether at most one has the address."""
        return not all(side.holds for side in self.sides)


def explore(names: tuple[str, str], **bounds: int) -> int:
    """Follow every order; return the number of states. An AssertionError shows one that fails."""
    sides = tuple(
        Side(Permissions(name, f"{name}0"), sees=f"{other}0")
        for name, other in (names, names[::-1])
    )
    first = Talk((sides[0], sides[1]), **bounds)
    seen, waiting = {first.key()}, [first]
    while waiting:
        talk = waiting.pop()
        for after in talk.steps():
            key = after.key()
            if key not in seen:
                assert after.is_safe, after
                seen.add(key)
                waiting.append(after)
    return len(seen)

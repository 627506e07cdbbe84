# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A node that holds and wants one address, and a peer that says anything: every order of messages.

The peer may say in its Lease that it is in another epoch, ask and answer; what it says it has is
any of all that it could say. It puts no address.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from purelb.core.holding.permissions import (
    Pair,
    PermissionAnswer,
    PermissionQuestion,
    Permissions,
    QuestionRefusal,
)
from tests.support.rule.records import IT, VIP

_ANY = (frozenset(), IT)


@dataclass(frozen=True)
class Beset:
    """The honest node, and in which epoch its peer is; `left`: how many lies are to come."""

    permissions: Permissions
    peer: str
    epoch: int = 0
    left: int = 4

    @property
    def key(self) -> tuple[object, ...]:
        """What decides how it continues."""
        permissions = self.permissions
        return *permissions.pairs.items(), *permissions.asked.items(), self.epoch, self.left

    @property
    def keeps(self) -> bool:
        """Whether the honest node still holds the address."""
        return not self.permissions.is_denied(VIP, [self.peer])

    def steps(self) -> Iterator[Beset]:
        """Yield what comes of each thing that may come next."""
        after = replace(self, left=self.left - 1)
        yield from (replace(after, permissions=made) for made in self._made())
        epoch = self.epoch + 1
        later = self.permissions.among({self.peer: f"{self.peer}{epoch}"})
        yield replace(after, permissions=later, epoch=epoch)

    def _made(self) -> Iterator[Permissions]:
        permissions, epoch = self.permissions, f"{self.peer}{self.epoch}"
        for question in permissions.asked.values():
            yield permissions.gave_up(self.peer, question.nonce)
            yield from (permissions.heard(self.peer, said) for said in _answers(question))
        if not permissions.asked:
            asked, _question = permissions.ask(self.peer, epoch, nonce="own", holds=IT)
            yield asked
        for question in _questions(self.peer, epoch, permissions):
            yield permissions.answer(
                question, epochs={self.peer: epoch}, holds=IT, wanted=IT
            )[0]  # fmt: skip


def _pairs(epoch: str) -> Iterator[Pair]:
    return (Pair(epoch, lent, borrowed) for lent, borrowed in product(_ANY, _ANY))


def _answers(question: PermissionQuestion) -> Iterator[PermissionAnswer]:
    yield from (PermissionAnswer(question.nonce, has) for has in _pairs(question.epoch))
    yield from (PermissionAnswer(question.nonce, refusal=refusal) for refusal in QuestionRefusal)


def _questions(peer: str, epoch: str, to: Permissions) -> Iterator[PermissionQuestion]:
    for wants, moves, holds, has in product(_ANY, _ANY, _ANY, (None, *_pairs(to.epoch))):
        yield PermissionQuestion(
            asker=peer, epoch=epoch, peer=to.node, peer_epoch=to.epoch, nonce="its",
            wants=wants, moves=moves, holds=holds, has=has,
        )  # fmt: skip


def explore(node: str, peer: str) -> int:
    """Follow every order; return the number of states. AssertionError if the address is taken."""
    first = Beset(Permissions(node, f"{node}0"), peer)
    seen, waiting = {first.key}, [first]
    while waiting:
        beset = waiting.pop()
        if not beset.left:
            continue
        for after in beset.steps():
            assert after.keeps, after
            if after.key not in seen:
                seen.add(after.key)
                waiting.append(after)
    return len(seen)

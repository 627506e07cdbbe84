# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Permissions to put addresses, between this node and each of the others.

Between each two nodes there is one permission for each address. It is with the one that ranks first
for the address, unless that node lent it to the other. A node puts an address only with the
permissions of all nodes that count, and keeps it until one of them asks for it; so at most one node
has an address, even if they differ about Leases, taints or endpoints. This is mutual
exclusion by permissions that stay where they were given (Ricart and Agrawala, Carvalho and
Roucairol). Where permissions are by default, a node that leaves or dies costs no question: the next
in rank has them.

Epochs name the time in which a permission is valid. Two nodes whose present epochs have not met
have no permission of each other. Nothing here sends anything, reads a clock or generates a nonce.

A node that lies can make others withdraw only addresses for which it ranks before them: what it
says it has counts only where this node's own record leaves that possible, and of what both say they
hold the rank decides. So a stolen token of one node takes no address that is rightly elsewhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Container, Dict, FrozenSet, Iterable, Mapping, Optional, Set, Tuple

from ..election.election import digest
from ..model import Address

# How many questions in a row a peer leaves without an answer before one goes by the Leases.
BY_LEASE_AFTER = 3
# Nodes that one promised to count, each with the seconds that are left of it.
Promised = Tuple[Tuple[str, float], ...]
_NONE: FrozenSet[Address] = frozenset()


class QuestionRefusal(str, Enum):
    """Why a question was not answered; the asker repeats it.

    UNKNOWN_EPOCH: one of the two epochs in the question is not the one that this node knows.
    EPOCH_OVER: this node has no right in its epoch of the question, and will never have one.
    CROSSING: this node's own question to the asker is under way, and goes first.
    NOT_MET: the asker says that it has met this node and has an address which this node holds and
    for which it ranks first. They meet again, each by what it holds.
    """

    UNKNOWN_EPOCH = "unknownEpoch"
    EPOCH_OVER = "epochOver"
    CROSSING = "crossing"
    NOT_MET = "notMet"


@dataclass(frozen=True)
class Pair:
    """The permissions between this node and a peer, since the epochs of both met.

    `epoch`: the peer's. `lent`: addresses that rank this node first, and whose permission the peer
    has or may have. `borrowed`: addresses that rank the peer first, and whose permission this node
    has. Where an answer was lost, neither has the permission until one of them asks again.
    """

    epoch: str
    lent: FrozenSet[Address] = _NONE
    borrowed: FrozenSet[Address] = _NONE

    def mirrored(self, epoch: str) -> Pair:
        """Return what the peer has, which is in this epoch for it."""
        return Pair(epoch, lent=self.borrowed, borrowed=self.lent)


@dataclass(frozen=True)
class PermissionQuestion:
    """A question of one node to another, each in one epoch.

    `wants`: addresses whose permission the asker lacks. `moves`: those of them for which only this
    peer's is missing, so it withdraws them even if it holds them. `has`: what the asker has of the
    pair; None if the epochs have not met for it: then they meet by `holds`, the addresses that it
    holds. `promised`: as in an answer.
    """

    asker: str
    epoch: str
    peer: str
    peer_epoch: str
    nonce: str
    wants: FrozenSet[Address] = _NONE
    moves: FrozenSet[Address] = _NONE
    holds: FrozenSet[Address] = _NONE
    has: Optional[Pair] = None
    promised: Promised = ()


@dataclass(frozen=True)
class PermissionAnswer:
    """What the answering node has of the pair from now on; or why it refused.

    `promised`: whom the answering node promised to count. The asker may not have heard of that, and
    counts them before it acts on what it was given. `ended`: the epochs that count no more for it,
    by node.
    """

    nonce: str
    has: Optional[Pair] = None
    refusal: Optional[QuestionRefusal] = None
    promised: Promised = ()
    ended: Tuple[Tuple[str, str], ...] = ()


@dataclass(frozen=True)
class Permissions:
    """The permissions of one node in one of its epochs; each change returns a new record.

    `pairs`: by peer, those whose epochs have met. `asked`: the one question to each peer whose
    answer counts. `silent`: how many questions in a row a peer did not answer.
    """

    node: str
    epoch: str = ""
    pairs: Mapping[str, Pair] = field(default_factory=dict)
    asked: Mapping[str, PermissionQuestion] = field(default_factory=dict)
    silent: Mapping[str, int] = field(default_factory=dict)

    def entered(self, epoch: str) -> Permissions:
        """Record that this node is in another epoch, in which it has met no node."""
        return self if epoch == self.epoch else Permissions(self.node, epoch)

    def among(self, peers: Mapping[str, str]) -> Permissions:
        """Record the epochs of the peers that count; those of another epoch have not been met."""
        if all(peers.get(peer) == pair.epoch for peer, pair in self.pairs.items()) and all(
            peers.get(peer) == question.peer_epoch for peer, question in self.asked.items()
        ):
            return self
        return replace(
            self,
            pairs={p: pair for p, pair in self.pairs.items() if peers.get(p) == pair.epoch},
            asked={p: q for p, q in self.asked.items() if peers.get(p) == q.peer_epoch},
        )

    def is_denied(self, address: Address, peers: Iterable[str]) -> bool:
        """Whether one of the peers that count for an address has it, or may have it."""
        return any(peer in self.pairs and not self._permits(peer, address) for peer in peers)

    def lacking(self, address: Address, peers: Iterable[str]) -> FrozenSet[str]:
        """Return those of the peers that count for an address whose permission is missing."""
        return frozenset(
            peer for peer in peers if peer not in self.pairs or not self._permits(peer, address)
        )

    def _permits(self, peer: str, address: Address) -> bool:
        pair = self.pairs[peer]
        if self._is_first(peer, address):
            return address not in pair.lent
        return address in pair.borrowed

    def _is_first(self, peer: str, address: Address) -> bool:
        return digest(self.node, address) < digest(peer, address)

    def to_ask(
        self, missing: Mapping[Address, Iterable[str]], epochs: Mapping[str, str]
    ) -> Dict[str, Tuple[FrozenSet[Address], FrozenSet[Address]]]:
        """Return what to ask each peer for now, as `wants` and `moves` of a question.

        `missing`: the addresses that this node wants and does not hold, each with the peers that
        count for it. `epochs`: the peers that share a subnet with this node. Who has not been met
        is asked also where nothing is wanted, as both may hold an address already.
        """
        wants: Dict[str, Set[Address]] = {p: set() for p in epochs if p not in self.pairs}
        moves: Dict[str, Set[Address]] = {}
        for address, peers in missing.items():
            lacking = self.lacking(address, peers)
            for peer in lacking:
                wants.setdefault(peer, set()).add(address)
                if len(lacking) == 1:
                    moves.setdefault(peer, set()).add(address)
        return {
            peer: (frozenset(wanted), frozenset(moves.get(peer, ())))
            for peer, wanted in wants.items()
            if peer not in self.asked
        }

    def ask(  # noqa: PLR0913 - the fields of a question
        self,
        peer: str,
        epoch: str,
        *,
        nonce: str,
        holds: FrozenSet[Address],
        wants: FrozenSet[Address] = _NONE,
        moves: FrozenSet[Address] = _NONE,
        promised: Promised = (),
    ) -> Tuple[Permissions, PermissionQuestion]:
        """Return a question to a peer in its epoch; the answer to an earlier one is void."""
        question = PermissionQuestion(
            asker=self.node,
            epoch=self.epoch,
            peer=peer,
            peer_epoch=epoch,
            nonce=nonce,
            wants=wants,
            moves=moves,
            holds=holds,
            has=self.pairs.get(peer),
            promised=promised,
        )
        return replace(self, asked={**self.asked, peer: question}), question

    def answer(
        self,
        question: PermissionQuestion,
        *,
        epochs: Mapping[str, str],
        holds: FrozenSet[Address],
        wanted: Container[Address],
    ) -> Tuple[Permissions, PermissionAnswer]:
        """Answer a peer's question; the node must withdraw what is denied before it sends that.

        `epochs`: those of the peers that count. `wanted`: what this node is to hold by its own
        plan, whether it does or not; it gives nothing of that away.
        """
        asker = question.asker
        if question.peer_epoch != self.epoch or question.epoch != epochs.get(asker):
            return self, PermissionAnswer(question.nonce, refusal=QuestionRefusal.UNKNOWN_EPOCH)
        if self.is_first_to_ask(asker):
            return self, PermissionAnswer(question.nonce, refusal=QuestionRefusal.CROSSING)
        pair = self._met(question, holds)
        if pair is None:
            return self, PermissionAnswer(question.nonce, refusal=QuestionRefusal.NOT_MET)
        given = {
            address
            for address in question.wants
            if address not in wanted and (address not in holds or address in question.moves)
        }
        lent = pair.lent.union(a for a in given if self._is_first(asker, a))
        pair = replace(pair, lent=lent, borrowed=pair.borrowed - given)
        answered = replace(
            self,
            pairs={**self.pairs, asker: pair},
            asked={peer: asked for peer, asked in self.asked.items() if peer != asker},
        )
        return answered, PermissionAnswer(question.nonce, pair)

    def keeping(self, question: PermissionQuestion, *, held: FrozenSet[Address]) -> Permissions:
        """Take back what this node still holds of what it gave, before the answer has been sent.

        So no question is without an answer because an address could not be withdrawn. Of what the
        asker does not want by this question nothing is taken back: it may hold that.
        """
        asker = question.asker
        given = {a for a in question.wants & question.moves if not self._permits(asker, a)}
        kept = held & given
        if not kept:
            return self
        pair = self.pairs[asker]
        borrowed = pair.borrowed.union(a for a in kept if not self._is_first(asker, a))
        pair = replace(pair, lent=pair.lent - kept, borrowed=borrowed)
        return replace(self, pairs={**self.pairs, asker: pair})

    def is_first_to_ask(self, peer: str) -> bool:
        """Whether a question to a peer is under way that goes before one from it.

        Each answer is about what its asker has when it arrives, so of two that cross one counts.
        """
        return peer in self.asked and self.node < peer

    def _met(self, question: PermissionQuestion, holds: FrozenSet[Address]) -> Optional[Pair]:
        """Return what this node has of the pair when it is asked; None if the two must meet again.

        An asker that has not met this node keeps what it holds and ranks first for, although this
        node has met it: this node took that in a time in which the asker did not count for it.
        """
        known, has = self.pairs.get(question.asker), question.has
        if known is not None:
            met_again = replace(known, borrowed=known.borrowed - question.holds)
            return met_again if has is None else known
        if has is None:
            return self._meet(question, holds)
        if any(self._is_first(question.asker, address) for address in has.borrowed & holds):
            return None
        return has.mirrored(question.epoch)

    def _meet(self, question: PermissionQuestion, holds: FrozenSet[Address]) -> Pair:
        """Return what two nodes have that meet: each keeps what it holds; of both, the first."""
        asker = question.asker
        return Pair(
            question.epoch,
            lent=frozenset(a for a in question.holds - holds if self._is_first(asker, a)),
            borrowed=frozenset(a for a in holds - question.holds if not self._is_first(asker, a)),
        )

    def heard(self, peer: str, answer: PermissionAnswer, *, by_lease: bool = False) -> Permissions:
        """Record a peer's answer: this node has what the peer has not.

        Void is an answer to a question other than the last one, or from before one of the two was
        in another epoch, or from before this node answered a question of the peer. An answer gives,
        and takes nothing that this node has: not of those that have met, and at their meeting
        nothing that this node ranks first for and holds.
        """
        question = self.asked.get(peer)
        if question is None or question.nonce != answer.nonce:
            return self
        asked = {name: other for name, other in self.asked.items() if name != peer}
        # Who was reached by its Lease only is asked directly again the next time, but once.
        tries = min(self.silent.get(peer, 0), BY_LEASE_AFTER - 1) if by_lease else 0
        silent = {**self.silent, peer: tries}
        pairs = {name: pair for name, pair in self.pairs.items() if name != peer}
        known = self.pairs.get(peer)
        if answer.has is not None:
            pair = answer.has.mirrored(question.peer_epoch)
            if known is None:
                pairs[peer] = replace(pair, lent=pair.lent - question.holds)
            else:
                lent, borrowed = pair.lent & known.lent, pair.borrowed | known.borrowed
                pairs[peer] = replace(pair, lent=lent, borrowed=borrowed)
        elif known is not None and answer.refusal is not QuestionRefusal.NOT_MET:
            pairs[peer] = known
        return replace(self, pairs=pairs, asked=asked, silent=silent)

    def gave_up(self, peer: str, nonce: str) -> Permissions:
        """Record that a question is not waited for any longer."""
        question = self.asked.get(peer)
        if question is None or question.nonce != nonce:
            return self
        return replace(
            self,
            asked={p: q for p, q in self.asked.items() if p != peer},
            silent={**self.silent, peer: self.silent.get(peer, 0) + 1},
        )

    def asks_by_lease(self, peer: str) -> bool:
        """Whether the next question to a peer goes by this node's Lease, and its answer by its."""
        return self.silent.get(peer, 0) >= BY_LEASE_AFTER

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Permissions between nodes, and what a node does with those that it has."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant

_CORE = "plugins/module_utils/purelb/core"
_PERMISSIONS = f"{_CORE}/holding/permissions.py"
_HOLDINGS = f"{_CORE}/node/holdings.py"

MUTANTS = (
    Mutant(
        "the permission of a node that was not met is not needed",
        _PERMISSIONS,
        "peer for peer in peers if peer not in self.pairs or not self._permits(peer, address)",
        "peer for peer in peers if peer in self.pairs and not self._permits(peer, address)",
    ),
    Mutant(
        "a node keeps the permission that it has lent",
        _PERMISSIONS,
        "            return address not in pair.lent\n",
        "            return True\n",
    ),
    Mutant(
        "a permission that was borrowed is not used",
        _PERMISSIONS,
        "        return address in pair.borrowed\n",
        "        return False\n",
    ),
    Mutant(
        "a node gives away what its own plan wants",
        _PERMISSIONS,
        "if address not in wanted and (address not in holds or address in question.moves)",
        "if address not in holds or address in question.moves",
    ),
    Mutant(
        "a node gives away what it holds before the other one has all other permissions",
        _PERMISSIONS,
        "if address not in wanted and (address not in holds or address in question.moves)",
        "if address not in wanted",
    ),
    Mutant(
        "a node keeps what it holds and another one wins",
        _PERMISSIONS,
        "if address not in wanted and (address not in holds or address in question.moves)",
        "if address not in wanted and address not in holds",
    ),
    Mutant(
        "what is wanted is taken for given",
        _PERMISSIONS,
        "            pair = answer.has.mirrored(question.peer_epoch)\n",
        "            pair = answer.has.mirrored(question.peer_epoch)\n"
        "            pair = replace(pair, borrowed=pair.borrowed | question.wants)\n",
    ),
    Mutant(
        "who says that it was met takes what another node holds",
        _PERMISSIONS,
        "if any(self._is_first(question.asker, address) for address in has.borrowed & holds):",
        "if not has:",
    ),
    Mutant(
        "who meets a node again keeps what that one took meanwhile and ranks first for",
        _PERMISSIONS,
        "            met_again = replace(known, borrowed=known.borrowed - question.holds)\n",
        "            met_again = known\n",
    ),
    Mutant(
        "an answer at a meeting takes what its asker holds and ranks first for",
        _PERMISSIONS,
        "pairs[peer] = replace(pair, lent=pair.lent - question.holds)",
        "pairs[peer] = pair",
    ),
    Mutant(
        "an answer takes what a node that was met has",
        _PERMISSIONS,
        "lent, borrowed = pair.lent & known.lent, pair.borrowed | known.borrowed",
        "lent, borrowed = pair.lent, pair.borrowed",
    ),
    Mutant(
        "two nodes of which one has not met the other never do",
        _PERMISSIONS,
        "elif known is not None and answer.refusal is not QuestionRefusal.NOT_MET:",
        "elif known is not None:",
    ),
    Mutant(
        "an answer to an earlier question counts",
        _PERMISSIONS,
        "        if question is None or question.nonce != answer.nonce:\n            return self\n",
        "        if question is None:\n            return self\n",
    ),
    Mutant(
        "of two questions that cross, both are answered",
        _PERMISSIONS,
        "return peer in self.asked and self.node < peer",
        "return False",
    ),
    Mutant(
        "an answer from before a question of the peer was answered counts",
        _PERMISSIONS,
        "asked={peer: asked for peer, asked in self.asked.items() if peer != asker},",
        "asked=self.asked,",
    ),
    Mutant(
        "of two nodes that meet and hold an address, both keep it",
        _PERMISSIONS,
        "lent=frozenset(a for a in question.holds - holds if self._is_first(asker, a)),",
        "lent=_NONE,",
    ),
    Mutant(
        "two nodes that meet do not agree on what the later in rank holds",
        _PERMISSIONS,
        "borrowed=frozenset(a for a in holds - question.holds if not self._is_first(asker, a)),",
        "borrowed=_NONE,",
    ),
    Mutant(
        "a question from an epoch that is not known is answered",
        _PERMISSIONS,
        "if question.peer_epoch != self.epoch or question.epoch != epochs.get(asker):",
        "if question.peer_epoch != self.epoch:",
    ),
    Mutant(
        "a question to an earlier epoch of this node is answered",
        _PERMISSIONS,
        "if question.peer_epoch != self.epoch or question.epoch != epochs.get(asker):",
        "if question.epoch != epochs.get(asker):",
    ),
    Mutant(
        "permissions of an earlier epoch of a peer are valid",
        _PERMISSIONS,
        "{p: pair for p, pair in self.pairs.items() if peers.get(p) == pair.epoch}",
        "{p: pair for p, pair in self.pairs.items() if p in peers}",
    ),
    Mutant(
        "permissions stay valid in another epoch of this node",
        _PERMISSIONS,
        "return self if epoch == self.epoch else Permissions(self.node, epoch)",
        "return replace(self, epoch=epoch)",
    ),
    Mutant(
        "a node that does not answer is never asked by its Lease",
        _PERMISSIONS,
        "return self.silent.get(peer, 0) >= BY_LEASE_AFTER",
        "return False",
    ),
    Mutant(
        "of what could not be withdrawn, the permission is given all the same",
        _PERMISSIONS,
        "        kept = held & given\n",
        "        kept = frozenset()\n",
    ),
    Mutant(
        "an address that is held is withdrawn until all permissions are there",
        _HOLDINGS,
        "            return self._is_denied(address)\n        lacking",
        "            return bool(self.permissions.lacking(address, self.peers_of(address)))\n"
        "        lacking",
    ),
    Mutant(
        "an address that another node wins is withdrawn before that one asks for it",
        _HOLDINGS,
        "    for address in facts.held:\n",
        "    for address in ():\n",
    ),
    Mutant(
        "an address is kept that a node wins which never asks for it",
        _HOLDINGS,
        "if found.election.winner not in self.epochs or self._is_denied(address):",
        "if self._is_denied(address):",
    ),
    Mutant(
        "an address is kept that a peer has the permission for",
        _HOLDINGS,
        "if found.election.winner not in self.epochs or self._is_denied(address):",
        "if found.election.winner not in self.epochs:",
    ),
    Mutant(
        "addresses are added without the right to add any",
        _HOLDINGS,
        "return not self.may_add or bool(lacking)",
        "return bool(lacking)",
    ),
    Mutant(
        "an address that another program has put there is kept as the node's VIP",
        _HOLDINGS,
        "if place is None or address in snapshot.foreign:",
        "if place is None:",
    ),
    Mutant(
        "only nodes that are not draining are asked for their permission",
        _HOLDINGS,
        "covering = snapshot.membership.covering(address)",
        "covering = snapshot.membership.candidates(address)",
    ),
    Mutant(
        "an address is kept next to a new node that does not see this one's deleted Lease",
        _HOLDINGS,
        "        if self.is_deleted and not peers <= self.permissions.pairs.keys():\n"
        "            return True\n",
        "",
    ),
)

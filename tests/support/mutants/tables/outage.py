# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the API is down for all nodes, and for how long they may hold then."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant

_PEERS = "plugins/module_utils/purelb/core/holding/outage.py"
_ASKING = "agent/purelb_agent/lease/peers.py"
_OUTAGE = "agent/purelb_agent/lease/outage.py"

MUTANTS = (
    Mutant(
        "half of the nodes are enough to hold",
        _PEERS,
        "if agreeing * 2 > len(peers) + 1:",
        "if agreeing * 2 >= len(peers) + 1:",
    ),
    Mutant(
        "silent nodes agree",
        _PEERS,
        "agreeing = said.count(PeerAnswer.CANNOT) + 1",
        "agreeing = said.count(PeerAnswer.CANNOT) + said.count(PeerAnswer.SILENT) + 1",
    ),
    Mutant(
        "that a peer knows of one that can renew is ignored",
        _PEERS,
        "_ANY_CAN = (PeerAnswer.CAN, PeerAnswer.KNOWS)",
        "_ANY_CAN = (PeerAnswer.CAN,)",
    ),
    Mutant(
        "that a node said unasked that it can renew is ignored",
        _PEERS,
        "if told or any(answer in _ANY_CAN for answer in said):",
        "if any(answer in _ANY_CAN for answer in said):",
    ),
    Mutant(
        "an agreement lets a node hold for as long as the promises last",
        _PEERS,
        "hold_until=asked_at + timing.renew_deadline,",
        "hold_until=asked_at + timing.duration,",
    ),
    Mutant(
        "an agreement lets a node announce until its addresses end",
        _PEERS,
        "announce_until=asked_at + timing.renew_deadline / 2,",
        "announce_until=asked_at + timing.renew_deadline,",
    ),
    Mutant(
        "a renewal from before the failure of the asker shows that a peer can renew",
        _PEERS,
        "any(now - said.at <= KNOWN_FOR and said.renewed_at >= since for said in heard)",
        "any(now - said.at <= KNOWN_FOR for said in heard)",
    ),
    Mutant(
        "a node passes on for ever what a peer once said",
        _PEERS,
        "any(now - said.at <= KNOWN_FOR and said.renewed_at >= since for said in heard)",
        "any(said.renewed_at >= since for said in heard)",
    ),
    Mutant(
        "two nodes confirm each other that a third one can renew",
        _ASKING,
        "            if spoken.answer is PeerAnswer.CAN:\n",
        "            if spoken.answer in (PeerAnswer.CAN, PeerAnswer.KNOWS):\n",
    ),
    Mutant(
        "a node answers an asker with what the asker itself said",
        _ASKING,
        "heard=(heard for peer, heard in self.heard.items() if peer != asker),",
        "heard=self.heard.values(),",
    ),
    Mutant(
        "a node says that it cannot renew without the promise that goes with it",
        _ASKING,
        "            answer = PeerAnswer.KNOWS\n",
        "            answer = PeerAnswer.CANNOT\n",
    ),
    Mutant(
        "a promise lasts for half of a Lease",
        _ASKING,
        "asker, seconds=self._timing.duration\n",
        "asker, seconds=self._timing.duration / 2\n",
    ),
    Mutant(
        "a message that is lost is not sent a second time",
        _ASKING,
        "if again is not None and not (await asyncio.wait(requests, timeout=again))[0]:",
        "if again is not None and (await asyncio.wait(requests, timeout=again))[0]:",
    ),
    Mutant(
        "an agreement counts from its last answer, not from the question",
        _OUTAGE,
        "self._renewer.extend(extended_deadline(asked_at, self._timing))",
        "self._renewer.extend(extended_deadline(clock.now(), self._timing))",
    ),
    Mutant(
        "an agreement never lets a node hold its addresses for longer",
        _OUTAGE,
        "            self._renewer.extend(extended_deadline(asked_at, self._timing))\n",
        "            pass\n",
    ),
    Mutant(
        "the agreement is asked for only once in an outage",
        _OUTAGE,
        "            while self._renewer.in_doubt.is_set():\n",
        "            while self._renewer.in_doubt.is_set() and self._assessment is None:\n",
    ),
    Mutant(
        "only nodes whose Lease counts are members, so the rest may be less than half",
        _OUTAGE,
        "self._reached((*self._store.leases.counting.near(), self._renewer.node))",
        "self._reached((*self._store.leases.counting.epochs(), self._renewer.node))",
    ),
)

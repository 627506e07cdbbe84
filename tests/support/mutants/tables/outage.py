# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Whether the API is down for all nodes, and for how long they may hold then."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant

_PEERS = "plugins/module_utils/purelb/core/holding/outage.py"
_ASKING = "agent/purelb_agent/peers/peers.py"
_OUTAGE = "agent/purelb_agent/holding/outage.py"

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
        "hold_until=asked_at + seconds)",
        "hold_until=asked_at + timing.duration)",
    ),
    Mutant(
        "an agreement lets a node announce until its addresses end",
        _PEERS,
        "announce_until=asked_at + seconds / 2,",
        "announce_until=asked_at + seconds,",
    ),
    Mutant(
        "a renewal from before the failure of the asker shows that a peer can renew",
        _PEERS,
        "any(said.at >= lately and said.renewed_at >= since for said in heard)",
        "any(said.at >= lately for said in heard)",
    ),
    Mutant(
        "a node passes on for ever what a peer once said",
        _PEERS,
        "any(said.at >= lately and said.renewed_at >= since for said in heard)",
        "any(said.renewed_at >= since for said in heard)",
    ),
    Mutant(
        "a message that is lost is not sent a second time",
        _ASKING,
        "if again is not None and not (await asyncio.wait(requests, timeout=again))[0]:",
        "if again is not None and (await asyncio.wait(requests, timeout=again))[0]:",
    ),
    Mutant(
        "the agreement is asked for only once in an outage",
        _OUTAGE,
        "            while self._renewer.in_doubt.is_set():\n",
        "            while self._renewer.in_doubt.is_set() and self._assessment is None:\n",
    ),
)

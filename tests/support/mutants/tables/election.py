# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The election, and which nodes are draining."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant

_CORE = "plugins/module_utils/purelb/core/election"
_ELECTION = f"{_CORE}/election.py"
_DRAINING = f"{_CORE}/draining.py"
_MEMBERS = f"{_CORE}/members.py"
_ENDPOINTS = f"{_CORE}/endpoints.py"
_VIPS = f"{_CORE}/vips.py"

MUTANTS = (
    Mutant(
        "the highest digest wins",
        _ELECTION,
        "return [known[digests.index(min(digests))]]",
        "return [known[digests.index(max(digests))]]",
    ),
    Mutant(
        "a new node wins over a winner with a lower digest",
        _ELECTION,
        "if _digest(node, suffix) < _digest(winner, suffix):",
        "if _digest(node, suffix) > _digest(winner, suffix):",
    ),
    Mutant(
        "where all nodes are evicted, none is a candidate",
        _ELECTION,
        "for cells in () if found else self.reserves:",
        "for cells in ():",
    ),
    Mutant(
        "nodes that an operator drains are candidates where all are evicted",
        _ELECTION,
        "_RESERVES = (Standing.EXCLUDED, Standing.EVICTED, Standing.ILL)",
        "_RESERVES = (Standing.EXCLUDED, Standing.EVICTED, Standing.ILL, Standing.DRAINED)",
    ),
    Mutant(
        "a node whose service proxy is dead goes before one that is evicted",
        _ELECTION,
        "_RESERVES = (Standing.EXCLUDED, Standing.EVICTED, Standing.ILL)",
        "_RESERVES = (Standing.EXCLUDED, Standing.ILL, Standing.EVICTED)",
    ),
    Mutant(
        "a change of the evicted nodes changes no winner",
        _ELECTION,
        "elif is_new_reserve and not _nodes(address, membership.cells):",
        "elif is_new_reserve and not membership.cells and not any(membership.reserves):",
    ),
    Mutant(
        "a node without a valid Lease is elected",
        _ELECTION,
        "return None if membership.healthy else _UNHEALTHY",
        "return None",
    ),
    Mutant(
        "an election is held before the Leases have been listed",
        _ELECTION,
        "    if not membership.listed:\n        return _NOT_LISTED\n",
        "",
    ),
    Mutant(
        "a winner that has left stays the winner",
        _ELECTION,
        "if winner is None or winner not in candidates:",
        "if winner is None:",
    ),
    Mutant(
        "nodes with an endpoint are preferred although they are no candidates",
        _ELECTION,
        "candidates = decision.candidates & preferred",
        "candidates = preferred",
    ),
    Mutant(
        "only equal subnets are shared, not those that overlap",
        _ELECTION,
        "any(a.version == b.version and a.overlaps(b) for a in one for b in other)",
        "any(a == b for a in one for b in other)",
    ),
    Mutant(
        "a remote address goes to evicted nodes while others could have it",
        _ELECTION,
        "if m.standing is standing)\n",
        "if m.standing in (standing, Standing.EVICTED))\n",
    ),
    Mutant(
        "a taint of a Node that was created again counts for the Lease of the old one",
        _DRAINING,
        'return node if node and lease.node_uid in ("", node.uid) else _UNMARKED',
        "return node or _UNMARKED",
    ),
    Mutant(
        "the label counts although an agent among them does not look at it",
        _MEMBERS,
        "frozenset.intersection(*(frozenset(lease.rules) for lease in live))",
        "frozenset().union(*(frozenset(lease.rules) for lease in live))",
    ),
    Mutant(
        "a dead service proxy counts although that of no other node works",
        _MEMBERS,
        "ill = {ServiceProxy.ILL} if well else set()",
        "ill = {ServiceProxy.ILL}",
    ),
    Mutant(
        "a cluster without kube-proxy on most nodes passes over those",
        _MEMBERS,
        "if 2 * well >= len(said):",
        "if well:",
    ),
    Mutant(
        "the label of a node counts more than its eviction",
        _MEMBERS,
        "    EXCLUDED = 1\n    EVICTED = 2\n",
        "    EVICTED = 1\n    EXCLUDED = 2\n",
    ),
    Mutant(
        "one Node more than allowed is evicted",
        _DRAINING,
        "if len(evicted - {node.name}) >= limit:",
        "if len(evicted - {node.name}) > limit:",
    ),
    Mutant(
        "an event taints a Node again after an operator has removed the taint",
        _DRAINING,
        "if node.preempted_by == event.mark:",
        "if node.preempted_by == event.mark and is_evicted(node):",
    ),
    Mutant(
        "an event from before the Node was created evicts it",
        _DRAINING,
        "return event.time is None or node.created is None or event.time >= node.created",
        "return True",
    ),
    Mutant(
        "the eviction removes the other taints of the Node",
        _DRAINING,
        "taints = [*map(_taint_body, node.taints), _taint_body(_SPOT_TAINT)]",
        "taints = [_taint_body(_SPOT_TAINT)]",
    ),
    Mutant(
        "a Service whose slice of endpoints is deleted keeps its nodes",
        _ENDPOINTS,
        "            else:\n                nodes.pop(service, None)\n",
        "",
    ),
    Mutant(
        "an address that was removed from its pool is withdrawn",
        _VIPS,
        "vip = stated.after(vips.get(address)).after(self._told.get(address))",
        "vip = stated.after(self._told.get(address))",
    ),
    Mutant(
        "an address that is in no pool is announced as the Service had another one in a pool",
        _VIPS,
        "        if set(before.services).isdisjoint(self.services):\n            return self\n",
        "",
    ),
)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The agent on a node: its Lease, questions of and to other nodes, interfaces."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant

_AGENT = "agent/purelb_agent"
_ENDS = f"{_AGENT}/holding/ends.py"
_RENEWER = f"{_AGENT}/holding/renewer.py"
_OWN_LEASE = f"{_AGENT}/holding/own_lease.py"
_RECONCILE = f"{_AGENT}/node/reconcile.py"
_REPORTER = f"{_AGENT}/node/reporter.py"
_INTERFACES = f"{_AGENT}/node/interfaces.py"
_ANNOUNCER = f"{_AGENT}/node/announcer.py"
_LEASE_TABLE = f"{_AGENT}/kube/lease_table.py"
_STORE = f"{_AGENT}/kube/store.py"
_WATCH = f"{_AGENT}/kube/watch.py"

MUTANTS = (
    Mutant(
        "who holds by agreement removes the entries of nodes that it takes for dead",
        _REPORTER,
        "        if deadline is not None and deadline.is_agreed:\n",
        "        if False:\n",
    ),
    Mutant(
        "agents that take away each other's entries do so as fast as they can",
        _REPORTER,
        "            if pause > 0:\n",
        "            if False:\n",
    ),
    Mutant(
        "an agent whose right is over writes what the others remove, again and again",
        _REPORTER,
        "live = frozenset(member.node for member in decisions.snapshot.membership.members)",
        "live = frozenset((self._node, *(m.node for m in decisions.snapshot.membership.members)))",
    ),
    Mutant(
        "a Lease that could not be read counts as not renewed",
        _ENDS,
        "            if error.status != NOT_FOUND:\n",
        "            if error.status > NOT_FOUND:\n",
    ),
    Mutant(
        "of two renewals under way, the one that names the version before is not given up",
        _RENEWER,
        "            other.cancel()\n",
        "            pass\n",
    ),
    Mutant(
        "a node says that it can renew although it does not reach the API",
        _RENEWER,
        "            if not await asyncio.shield(self._reading):\n                return None\n",
        "            await asyncio.shield(self._reading)\n",
    ),
    Mutant(
        "an agent without a key says that it knows epochs",
        _RENEWER,
        'epoch = renewal.epoch if lease.peer_keys else ""',
        "epoch = renewal.epoch",
    ),
    Mutant(
        "a change that is none any more is written",
        _RENEWER,
        "if now < self._right.next_at and lease == self._last:",
        "if now < self._right.next_at and self._last is None:",
    ),
    Mutant(
        "a renewal that is due is not sent as nothing has changed",
        _RENEWER,
        "if now < self._right.next_at and lease == self._last:",
        "if lease == self._last:",
    ),
    Mutant(
        "an agent that leaves may still hold addresses",
        _RENEWER,
        "        self._right = self._right.released()\n",
        "",
    ),
    Mutant(
        "a watch that does not show the own Lease is not restarted",
        _RENEWER,
        "            self._store.leases.watch_anew()\n",
        "            pass\n",
    ),
    Mutant(
        "a renewal creates a Lease that another program has deleted for a Node that is gone",
        _OWN_LEASE,
        '        for field in ("resourceVersion", "uid"):\n',
        '        for field in ("resourceVersion",):\n',
    ),
    Mutant(
        "an agent that leaves deletes the Lease of its successor",
        _OWN_LEASE,
        "        if body is None or not self._is_own(body):\n",
        "        if body is None:\n",
    ),
    Mutant(
        "an agent that leaves does not say so before it deletes its Lease",
        _OWN_LEASE,
        '        body["spec"]["holderIdentity"] = ""\n',
        "",
    ),
    Mutant(
        "an agent withdraws what an earlier one left before its first Lease",
        _RECONCILE,
        "        if not has_begun and now < self._left_until:\n",
        "        if not has_begun and now > self._left_until:\n",
    ),
    Mutant(
        "a node does not wake at the end of its right",
        _RECONCILE,
        "        return min(due, deadline.announce_until)\n",
        "        return due\n",
    ),
    Mutant(
        "the fence opens although something is left of a right that has ended",
        _RECONCILE,
        "        if not snapshot.left & present:\n            self._fence",
        "        if present is not None:\n            self._fence",
    ),
    Mutant(
        "a renewal is taken for no news although the fence does not end the right",
        _RECONCILE,
        "return self._is_steady and self._fence.opened is Opened.EVER_SINCE",
        "return self._fence.opened is Opened.EVER_SINCE",
    ),
    Mutant(
        "a node that cannot read its interfaces keeps addresses without a right",
        _RECONCILE,
        "self._interfaces.withdraw_put(Reason.LEASE_UNHEALTHY, only_expiring=True)",
        "pass",
    ),
    Mutant(
        "an address that could not be withdrawn counts as withdrawn",
        _INTERFACES,
        '            log.error("withdrawFailed", ip=held.address, interface=where, '
        "error=str(error))\n            return False\n",
        '            log.error("withdrawFailed", ip=held.address, interface=where, '
        "error=str(error))\n",
    ),
    Mutant(
        "an address is put although its time has passed meanwhile",
        _INTERFACES,
        "sent = put.sent_at(clock.now())",
        "sent = put.sent_at(0.0)",
    ),
    Mutant(
        "an address whose detection is not finished is announced",
        _INTERFACES,
        "return seen is not None and not seen.tentative and not seen.dad_failed",
        "return seen is not None and not seen.dad_failed",
    ),
    Mutant(
        "addresses are not announced again when a cable is back",
        _RECONCILE,
        "        fresh |= {place for place in announced if place[0] in restored}\n",
        "",
    ),
    Mutant(
        "addresses of IPv6 are not announced",
        _ANNOUNCER,
        "frames = [frame for a in addresses for frame in build_announcement(link.mac, a)]",
        "ours = [a for a in addresses if a.version == 4]\n"
        "        frames = [frame for a in ours for frame in build_announcement(link.mac, a)]",
    ),
    Mutant(
        "an address that comes back is not announced",
        _ANNOUNCER,
        "gained = (usable - self._usable) | (usable & fresh)\n        self._usable = usable\n",
        "gained = (usable - self._usable) | (usable & fresh)\n        self._usable |= usable\n",
    ),
    Mutant(
        "a Lease that a list lacks counts until it ends",
        _LEASE_TABLE,
        "            self.counting = self.counting.deleted(node)\n",
        "            pass\n",
    ),
    Mutant(
        "a new epoch of a node is noticed at its next change only",
        _LEASE_TABLE,
        "        lease.epoch,\n        lease.mail,\n",
        "        lease.mail,\n",
    ),
    Mutant(
        "a node counts itself as a candidate without a right",
        _STORE,
        "            members = tuple(m for m in members if m.node != self._node)\n",
        "            members = tuple(members)\n",
    ),
    Mutant(
        "a node that is deleted from the API is not reached any more, though it may hold",
        _STORE,
        "self._addresses = {**left, **{node: own for node, own in found.items() if own}}",
        "self._addresses = {node: own for node, own in found.items() if own}",
    ),
    Mutant(
        "a watch begins where it was after an older store was put back",
        _WATCH,
        '                raise ApiError(GONE, "an older store has been put back")\n',
        "                pass\n",
    ),
)

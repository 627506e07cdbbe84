# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which Leases count, and until when."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant

_COUNTING = "plugins/module_utils/purelb/core/holding/counting.py"
_COUNTED = "plugins/module_utils/purelb/core/holding/counted_lease.py"

MUTANTS = (
    Mutant(
        "a Lease that its node has released counts",
        _COUNTED,
        "return not (self.is_ended or self.lease.is_released or self.is_over)",
        "return not (self.is_ended or self.is_over)",
    ),
    Mutant(
        "a node that said that it has no right counts",
        _COUNTED,
        "return not (self.is_ended or self.lease.is_released or self.is_over)",
        "return not (self.is_ended or self.lease.is_released)",
    ),
    Mutant(
        "a Lease counts for half of its duration",
        _COUNTING,
        "        until = now + lease.duration\n        if known is None:",
        "        until = now + lease.duration / 2\n        if known is None:",
    ),
    Mutant(
        "a shorter duration ends sooner what the one before it allows",
        _COUNTING,
        "        until = max(until, known.until)\n        return self._with(lease.node",
        "        return self._with(lease.node",
    ),
    Mutant(
        "a change that is no renewal makes a Lease count longer",
        _COUNTING,
        "return self._with(lease.node, replace(known, lease=lease, is_deleted=False))",
        "return self._with(lease.node, replace(known, lease=lease, is_deleted=False, until=until))",
    ),
    Mutant(
        "a past epoch, of a store that was put back, counts",
        _COUNTING,
        "        if known.counts and known.is_past(lease.epoch):\n            return self\n",
        "",
    ),
    Mutant(
        "a promise to count a node does not make its Lease count longer",
        _COUNTING,
        "leases = {**leases, node: replace(known, until=max(known.until, until))}",
        "leases = {**leases, node: known}",
    ),
    Mutant(
        "a node promises to count one that does not count any more",
        _COUNTING,
        "if listed if known is None else not known.counts:",
        "if listed if known is None else False:",
    ),
    Mutant(
        "a node believes of others that a Lease has ended which it promised to count",
        _COUNTING,
        "        if now < self.promises.get(node, now):\n            return self\n",
        "",
    ),
    Mutant(
        "that an epoch has ended is believed for another epoch, too",
        _COUNTING,
        "if known is None or not known.counts or known.lease.epoch != epoch:",
        "if known is None or not known.counts:",
    ),
    Mutant(
        "what others promised does not make a Lease count longer",
        _COUNTING,
        "until = max(known.until, now + left)\n                again",
        "until = known.until\n                again",
    ),
    Mutant(
        "a node that was heard again stays ended",
        _COUNTING,
        "        if known is None or not known.is_ended:\n            return self\n        until",
        "        if known is None or known.is_ended:\n            return self\n        until",
    ),
    Mutant(
        "the end of a Lease is believed without a read of it",
        _COUNTED,
        "if now >= self.until and self.found.read_at < self.until:",
        "if not is_asked and now >= self.until and self.found.read_at < self.until:",
    ),
    Mutant(
        "the end of a Lease is believed without a question to its node",
        _COUNTED,
        "if is_asked and now >= asks_from and self.found.silent_at < asks_from:",
        "if is_asked and now < asks_from and self.found.silent_at < asks_from:",
    ),
    Mutant(
        "the end of a Lease is believed without questions to those that promised to count it",
        _COUNTED,
        "if is_asked and now >= self.until and self.found.others_at < self.found.read_at:",
        "if is_asked and now < self.until and self.found.others_at < self.found.read_at:",
    ),
    Mutant(
        "a Lease that another program deleted is forgotten at once",
        _COUNTING,
        "        if known.counts and known.lease.epoch:\n"
        "            return self._with(node, known)\n",
        "",
    ),
    Mutant(
        "of the others, also those are asked that are not near",
        _COUNTING,
        "if node != lease.node and share_subnet(other.subnets, lease.subnets)",
        "if node != lease.node",
    ),
    Mutant(
        "an ended Lease stays ended for a node that comes into its subnet",
        _COUNTING,
        "return self\n        seen = replace(self, subnets=subnets)\n",
        "return self\n        return replace(self, subnets=subnets)\n        seen = self\n",
    ),
    Mutant(
        "a Lease is old as soon as another one is written after its end",
        _COUNTING,
        "newest > lease.written + lease.duration + _SERVERS_DIFFER",
        "newest > lease.written + lease.duration",
    ),
    Mutant(
        "an old Lease is counted at its first sight as if it had just been renewed",
        _COUNTING,
        "            until = now if is_old else until\n",
        "",
    ),
    Mutant(
        "a promise is forgotten a second before it ends",
        _COUNTING,
        "promises = {n: until for n, until in self.promises.items() if now < until}",
        "promises = {n: until for n, until in self.promises.items() if now + 1.0 < until}",
    ),
    Mutant(
        "who may not know of the one that took its addresses hears of it only once",
        _COUNTED,
        "return Check.ASK_NODE if is_asked and is_due else None",
        "return None",
    ),
    Mutant(
        "all nodes that do not count are asked again and again",
        _COUNTED,
        "return self.is_ended and self.is_first and not self.is_over",
        "return self.is_ended and not self.is_over",
    ),
    Mutant(
        "who says that it has a right after its end does not count again",
        _COUNTING,
        "known = self.heard(node, now=now).leases.get(node)",
        "known = self.leases.get(node)",
    ),
    Mutant(
        "a late word of an earlier epoch ends the present one",
        _COUNTED,
        "        return epoch == over or (same_start(epoch, over) and is_earlier(epoch, over))\n",
        "        return epoch == over or same_start(epoch, over)\n",
    ),
)

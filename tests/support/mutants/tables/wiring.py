# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""How the parts of the agent are put together, and what they say to each other."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant

_AGENT = "agent/purelb_agent"
_MAIN = f"{_AGENT}/node/main.py"
_RECONCILE = f"{_AGENT}/node/reconcile.py"
_INTERFACES = f"{_AGENT}/node/interfaces.py"
_ENDS = f"{_AGENT}/holding/ends.py"
_STORE = f"{_AGENT}/kube/store.py"

MUTANTS = (
    Mutant(
        "no one restarts a watch that does not show the own Lease",
        _MAIN,
        '        store.leases.watch_anew = self.watchers["leases"].refresh\n',
        "",
    ),
    Mutant(
        "the ends of Leases are never checked",
        _MAIN,
        '        tasks.start("ends", self.ends.run())\n',
        "",
    ),
    Mutant(
        "a node that knows too little looks at the Leases only, not at the Nodes",
        _MAIN,
        '        self.watchers["nodes"].refresh()\n',
        "",
    ),
    Mutant(
        "the task that asks in an outage is not started",
        _MAIN,
        '            tasks.start("hold", outage_keeper.run())\n',
        "",
    ),
    Mutant(
        "an agent that leaves deletes its Lease while a renewal may be under way",
        _MAIN,
        '        await tasks.stop("renew", "reconcile")\n',
        "",
    ),
    Mutant(
        "an agent deletes its Lease without knowing what an earlier one has left",
        _MAIN,
        "        if self.reconciler.has_acted:\n",
        "        if self.reconciler:\n",
    ),
    Mutant(
        "an address that the last read did not show does not count as held",
        _RECONCILE,
        "held |= {a for link, a in self._interfaces.held if link not in snapshot.dummies}\n",
        "held |= frozenset()\n",
    ),
    Mutant(
        "an address whose put was not answered is not the agent's",
        _INTERFACES,
        "self.put = (self.put | self._unsure) & self._seen.keys()",
        "self.put = self.put & self._seen.keys()",
    ),
    Mutant(
        "a node that asks for a right does not say that it can renew",
        _ENDS,
        '{"epoch": lease.epoch, **can}, _ANSWER_SECONDS)\n        # Also',
        '{"epoch": lease.epoch}, _ANSWER_SECONDS)\n        # Also',
    ),
    Mutant(
        "a node does not know of its own taint",
        _STORE,
        "members = members_of((*self.leases.counting.counted(), own), self.marked)",
        "others = {n: m for n, m in self.marked.items() if n != self._node}\n"
        "        members = members_of((*self.leases.counting.counted(), own), others)",
    ),
)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which address a Service gets, and that it keeps it."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant

_CORE = "plugins/module_utils/purelb/core/allocation"
_ALLOCATE = f"{_CORE}/allocate.py"
_LEDGER = f"{_CORE}/allocations.py"
_CHOICE = f"{_CORE}/choice.py"
_OWN = f"{_CORE}/own.py"
_UNDONE = "plugins/module_utils/purelb/core/undone.py"
_AGENT = "agent/purelb_agent/allocator"
_SERVICES = f"{_AGENT}/service_allocator.py"
_CONTROLLER = f"{_AGENT}/controller.py"

MUTANTS = (
    Mutant(
        "a Service loses an address that is in no range of its group any more",
        _CHOICE,
        "return address.version in self._service.families and (in_pool or self._is_of_group)",
        "return address.version in self._service.families and in_pool",
    ),
    Mutant(
        "a Service keeps an address of a family that it does not have any more",
        _CHOICE,
        "return address.version in self._service.families and (in_pool or self._is_of_group)",
        "return in_pool or self._is_of_group",
    ),
    Mutant(
        "a Service that has an address of one family does not get one of the other",
        _CHOICE,
        "            free = None if self._has(version) else self._free(self._ranges(version))\n",
        "            free = None if self._chosen else self._free(self._ranges(version))\n",
    ),
    Mutant(
        "a Service gets an address that a Node has, if it asks for it",
        _CHOICE,
        "        if is_new and self._allocations.is_of_a_node(address):\n",
        "        if not is_new and self._allocations.is_of_a_node(address):\n",
    ),
    Mutant(
        "the fullest range comes first, not the emptiest",
        _CHOICE,
        "ranges = sorted(ranges, key=self._allocations.in_use)",
        "ranges = sorted(ranges, key=self._allocations.in_use, reverse=True)",
    ),
    Mutant(
        "the last address of a range is never given",
        _LEDGER,
        "return pool_range.first + offset if offset < pool_range.size else None",
        "return pool_range.first + offset if offset + 1 < pool_range.size else None",
    ),
    Mutant(
        "an address beyond the end of a full range is given",
        _LEDGER,
        "return pool_range.first + offset if offset < pool_range.size else None",
        "return pool_range.first + offset",
    ),
    Mutant(
        "two Services that share no key get the same address",
        _LEDGER,
        "if is_far or service.sharing_key is None or terms.sharing_key != service.sharing_key:",
        "if is_far or terms.sharing_key != service.sharing_key:",
    ),
    Mutant(
        "two Services with the same port share an address",
        _LEDGER,
        "            if terms.ports & service.ports:\n",
        "            if terms.ports == service.ports:\n",
    ),
    Mutant(
        "Services of other namespaces share an address without being allowed to",
        _LEDGER,
        "is_far = is_new and not across_namespaces and terms.namespace != service.key.namespace",
        "is_far = False",
    ),
    Mutant(
        "an address stays taken after the last Service that had it",
        _LEDGER,
        "            if address not in self._excluded:\n"
        "                self._free_number(address)\n",
        "",
    ),
    Mutant(
        "an address that a Node has is given",
        _LEDGER,
        "            insort(self._numbers[address.version], int(address))\n"
        "        for address in self._excluded",
        "            pass\n        for address in self._excluded",
    ),
    Mutant(
        "at its start, the allocator forgets the addresses that Services have",
        _ALLOCATE,
        'allocations.hold(service, has, origin_of(service, groups, allocations) or "")',
        "pass",
    ),
    Mutant(
        "of two Services with one address, the younger keeps it",
        _ALLOCATE,
        "key=lambda s: (not was_ours(s), s.created, str(s.key))",
        "key=lambda s: (not was_ours(s), -s.created, str(s.key))",
    ),
    Mutant(
        "a Service whose group was deleted loses its addresses",
        _ALLOCATE,
        "if shown and _is_orphan(service, groups, held):",
        "if False:",
    ),
    Mutant(
        "a namespace gets addresses of a group that is not for it",
        _ALLOCATE,
        "        if denied is not None and _gives_more(outcome, held):\n            raise denied\n",
        "",
    ),
    Mutant(
        "a Service loses its address when its group denies its namespace",
        _ALLOCATE,
        "        if denied is not None and _gives_more(outcome, held):\n",
        "        if denied is not None:\n",
    ),
    Mutant(
        "a Service that is no LoadBalancer any more keeps its address",
        _ALLOCATE,
        "return Release() if is_ours(service, allocations, classes) else Keep()",
        "return Keep()",
    ),
    Mutant(
        "a Service whose annotations were removed moves to the group that serves its namespace",
        _ALLOCATE,
        "choice = groups.of(service, held)",
        "choice = groups.of(service, held if service.allocated_by_us else HeldAddresses())",
    ),
    Mutant(
        "a Service keeps nothing of ours only if its annotations say that it had something",
        _ALLOCATE,
        "is_known = service.bears_marks or allocations.group_of(service.key) is not None",
        "is_known = service.bears_marks",
    ),
    Mutant(
        "what another program writes into the status of a Service of ours stays there",
        _OWN,
        "        if address in given\n",
        "        if True\n",
    ),
    Mutant(
        "at its start, the allocator takes the addresses of nodes for its own",
        _OWN,
        "not is_foreign and not allocations.is_of_a_node(address)",
        "not is_foreign",
    ),
    Mutant(
        "at its start, the allocator takes what another program wrote last for its own",
        _OWN,
        "not is_foreign and not allocations.is_of_a_node(address)",
        "not allocations.is_of_a_node(address)",
    ),
    Mutant(
        "two controllers answer each other for ever as fast as they can",
        _UNDONE,
        "        return max(0.0, self.at + pause - now)\n",
        "        return 0.0\n",
    ),
    Mutant(
        "a write that was undone once is repeated only after a pause",
        _UNDONE,
        "        if self.undone == 0 or not self.is_undone_by(what, now):\n",
        "        if not self.is_undone_by(what, now):\n",
    ),
    Mutant(
        "a Service that is being deleted gets an address",
        "plugins/module_utils/purelb/core/election/claims.py",
        "is_wanted = service.is_load_balancer and not service.is_terminating",
        "is_wanted = service.is_load_balancer",
    ),
    Mutant(
        "the allocator removes what another program wrote into a status",
        f"{_AGENT}/service_writer.py",
        "        if service.addresses == own and not service.other_ingress:\n",
        "        if True:\n",
    ),
    Mutant(
        "an address is entered only after it was written, so another Service may get it meanwhile",
        _SERVICES,
        "            self._taken.hold(service, both, outcome.group)\n",
        "",
    ),
    Mutant(
        "what a Service had is free before the Service has its new address",
        _SERVICES,
        "both = {*outcome.addresses, *self._taken.given(service.key)}",
        "both = outcome.addresses",
    ),
    Mutant(
        "the addresses of a deleted Service stay taken",
        _SERVICES,
        "        self._free(key, self._taken.release(key))\n\n    def succeeded",
        "\n    def succeeded",
    ),
    Mutant(
        "a Service that was refused does not get an address that becomes free",
        _SERVICES,
        "            self.on_freed()\n",
        "            pass\n",
    ),
    Mutant(
        "the allocator allocates before it knows all Services",
        _CONTROLLER,
        "        return all(table.listed for table in tables)\n",
        "        return any(table.listed for table in tables)\n",
    ),
    Mutant(
        "Services that exist when the allocator starts get nothing",
        _CONTROLLER,
        "        self._enqueue(self.services.records)\n        self._metrics.mark_loaded()",
        "        self._metrics.mark_loaded()",
    ),
    Mutant(
        "a failed write is not tried again",
        _CONTROLLER,
        "                self._queue.retry(key)\n            return None\n",
        "                pass\n            return None\n",
    ),
    Mutant(
        "an older Service than the one that was written counts as a change",
        _CONTROLLER,
        '        if codec.is_older(service.version, self._written.get(key, "")):\n'
        "            return None\n",
        "",
    ),
    Mutant(
        "a changed group changes no Service",
        _CONTROLLER,
        "        pools.on_change = self._groups_changed\n",
        "        pools.on_change = self._wakeup.notify\n",
    ),
)

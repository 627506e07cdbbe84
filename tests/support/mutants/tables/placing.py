# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a node decides and plans for its interfaces."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant

_CORE = "plugins/module_utils/purelb/core/node"
_DECISIONS = f"{_CORE}/decisions.py"
_PLAN = f"{_CORE}/plan.py"
_SNAPSHOT = f"{_CORE}/snapshot.py"
_ANNOUNCING = f"{_CORE}/announcing.py"
_MOVES = f"{_CORE}/moves.py"
_LEFT = f"{_CORE}/left.py"
_CONTROL = "agent/purelb_agent/fence/control.py"

MUTANTS = (
    Mutant(
        "an address that another host has moves without detection",
        _MOVES,
        "        if not rejected.isdisjoint(elsewhere):\n",
        "        if False:\n",
    ),
    Mutant(
        "who cannot hold addresses does not see that another node wins them",
        _MOVES,
        "            if not is_barred and id(decision) in seen:\n",
        "            if id(decision) in seen:\n",
    ),
    Mutant(
        "a lifetime outlives the right by the second that the kernel may be late",
        _PLAN,
        "else deadline.hold_until - _KERNEL_LATE\n",
        "else deadline.hold_until\n",
    ),
    Mutant(
        "an address is put with its whole lifetime, however late that is",
        _PLAN,
        "        if left >= self.valid_lft:\n            return self\n",
        "        return self\n",
    ),
    Mutant(
        "an address on a real interface has the mask of its pool",
        _PLAN,
        "if vip.pool_type is PoolType.LOCAL or vip.prefixlen is None:",
        "if vip.prefixlen is None:",
    ),
    Mutant(
        "an IPv6 address of a Service is a source of the node's traffic",
        _PLAN,
        "default = 0 if address.version == 6 else valid",
        "default = valid",
    ),
    Mutant(
        "an IPv4 address stays before the node's own",
        _PLAN,
        " or (held.link, held.address) in again:",
        ":",
    ),
    Mutant(
        "lifetimes are refreshed only when they end",
        _PLAN,
        "            yield now + want.valid_lft / 2\n",
        "            yield now + want.valid_lft\n",
    ),
    Mutant(
        "an address that failed duplicate address detection stays",
        _PLAN,
        "        and not held.dad_failed\n",
        "",
    ),
    Mutant(
        "addresses that are not wanted any more stay until their lifetime ends",
        _PLAN,
        "            if snapshot.is_vip(held):\n                decision",
        "            if snapshot.is_vip(held) and not held.expires_at:\n                decision",
    ),
    Mutant(
        "an agent that starts trusts what may have outlasted its right",
        _LEFT,
        "opened is Opened.SHUT or held.protocol == FENCED_PROTOCOL",
        "opened is Opened.SHUT",
    ),
    Mutant(
        "an agent trusts its addresses although its fence was shut",
        _LEFT,
        "    if opened in (Opened.BEFORE, Opened.EVER_SINCE):\n",
        "    if opened is not Opened.NOT_YET:\n",
    ),
    Mutant(
        "an agent that starts believes for ever that the one before has its right",
        _CONTROL,
        "return Opened.BEFORE if self._before > _nanoseconds(clock.now()) else Opened.NOT_YET",
        "return Opened.BEFORE if self._before else Opened.NOT_YET",
    ),
    Mutant(
        "an address is put although the fence has fallen shut",
        _PLAN,
        "return self if now < self.ends_by else None",
        "return self",
    ),
    Mutant(
        "addresses that are not the agent's are removed",
        _SNAPSHOT,
        "return held.protocol in OUR_PROTOCOLS",
        "return True",
    ),
    Mutant(
        "a node is healthy until its addresses end, not until it has to withdraw them",
        _SNAPSHOT,
        "healthy = deadline is not None and now < deadline.announce_until",
        "healthy = deadline is not None and now < deadline.hold_until",
    ),
    Mutant(
        "the address of a Node is put on another node",
        _DECISIONS,
        "    if vip.address in snapshot.known:\n        return Reason.NODE_ADDRESS\n",
        "",
    ),
    Mutant(
        "a node that leaves keeps its addresses",
        _DECISIONS,
        "return Reason.LEAVING if snapshot.leaving else None",
        "return None",
    ),
    Mutant(
        "a node with externalTrafficPolicy Local announces without an endpoint",
        _DECISIONS,
        "if not vip.everywhere and snapshot.node not in vip.endpoint_nodes(snapshot.endpoints):",
        "if not vip.everywhere and not vip.endpoint_nodes(snapshot.endpoints):",
    ),
    Mutant(
        "a change of the endpoints moves no address",
        _DECISIONS,
        "services=before.vips is after.vips and before.endpoints is after.endpoints,",
        "services=before.vips is after.vips,",
    ),
    Mutant(
        "an evicted node withdraws a remote address that no other node can have",
        _DECISIONS,
        "if m.standing < standing)",
        "if m.standing <= standing)",
    ),
    Mutant(
        "announcements of an address continue after it was lost",
        _ANNOUNCING,
        "if config.verify and place not in holding:",
        "if config.verify and not holding:",
    ),
)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Holders of nodes that count each other, and the messages between two of them.

How to use it:

    one, other = holder("a", "b"), holder("b", "a")
    one, other = ask(one, other, {VIP4: ["b"]})     # a question and its answer
"""

from __future__ import annotations

from itertools import count

from purelb.core.holding.counting import Counting
from purelb.core.holding.holder import Holder
from purelb.core.holding.permissions import Permissions
from purelb.core.holding.right import Right
from purelb.core.model import Lease
from purelb.core.settings import LeaseTiming
from tests.support.core.snapshots import NET4, NET6

TIMING = LeaseTiming()
NETS = (NET4, NET6)
NOTHING = frozenset()


def lease(node, *, epoch=None, renewed=1.0, subnets=NETS, **more):
    """The Lease of a node in its first epoch, or in another one."""
    epoch = f"{node}.1" if epoch is None else epoch
    return Lease(
        node, holder=node, epoch=epoch, renew_time=renewed, duration=10.0, subnets=subnets, **more
    )


def renewed(right, *, now, subnets=NETS):
    """A right whose renewal was sent and answered now, and shown."""
    right, renewal = right.sent(subnets, now=now)
    right = right.succeeded(renewal, now=now)
    return right.shown(right.epoch, now=now)


def holder(node, *peers, now=0.0, held=NOTHING):
    """A node with a right, whose plan has been carried out, that counts these peers."""
    counting = Counting().seen_from(NETS)
    for peer in peers:
        counting = counting.observe(lease(peer), now=now)
    right = renewed(Right(TIMING, node), now=now)
    return Holder(right, Permissions(node), counting, held=frozenset(held)).at(now)


def nonces():
    """Another text each time."""
    numbers = count()
    return lambda: f"nonce {next(numbers)}"


def answered(node, question, *, held=None, wanted=NOTHING, now=0.0, by_lease=False):
    """Let a node be asked, plan and answer in one cycle; return it and its answers."""
    node = node.asked(question, now=now, by_lease=by_lease)
    held = node.held if held is None else held
    node = node.answer(held=held, wanted=frozenset(wanted), now=now)
    epochs = node.counting.epochs()
    denied = {address for address in held if node.permissions.is_denied(address, epochs)}
    node, replies = node.reply(held=held - denied, now=now)
    return node, [answer for _asked, answer in replies]


def ask(one, other, missing=(), *, now=0.0, wanted=NOTHING):
    """Let one node ask what it lacks, and another one answer."""
    one, questions = one.ask(dict(missing), nonce=nonces(), now=now)
    for question in questions:
        other, (answer,) = answered(other, question, wanted=wanted, now=now)
        one = one.hear(question, answer, now=now)
    return one, other

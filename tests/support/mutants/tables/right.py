# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The right of a node to hold addresses."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant

_RIGHT = "plugins/module_utils/purelb/core/holding/right.py"

MUTANTS = (
    Mutant(
        "the right lasts as long as the Lease, without the time for a withdrawal",
        _RIGHT,
        "return self.sent_at + self.timing.renew_deadline\n",
        "return self.sent_at + self.timing.duration\n",
    ),
    Mutant(
        "all clocks go at the same rate",
        _RIGHT,
        "_CLOCK_RATES = 0.001",
        "_CLOCK_RATES = 0.0",
    ),
    Mutant(
        "the right counts from the answer to a renewal, not from its request",
        _RIGHT,
        "replace(self, sent_at=sent_at, took=now - sent_at, is_failing=False)",
        "replace(self, sent_at=now, took=now - sent_at, is_failing=False)",
    ),
    Mutant(
        "a renewal that is answered after its own end gives a right",
        _RIGHT,
        "is_late = now >= renewed.ends_at",
        "is_late = False",
    ),
    Mutant(
        "a renewal continues an epoch after the Lease's end",
        _RIGHT,
        "if has_right and epoch == self.epoch and now < self._lease_ends_at and not is_late:",
        "if has_right and epoch == self.epoch and not is_late:",
    ),
    Mutant(
        "a renewal continues an epoch whose right has ended",
        _RIGHT,
        "if has_right and epoch == self.epoch and now < self._lease_ends_at and not is_late:",
        "if epoch == self.epoch and now < self._lease_ends_at and not is_late:",
    ),
    Mutant(
        "a slow renewal gives a right back to a node that others have replaced",
        _RIGHT,
        "is_useful = had_none or not self.is_cut_off or renewed.is_quick_by(_RETURN)",
        "is_useful = True",
    ),
    Mutant(
        "a failed renewal does not use up its epoch",
        _RIGHT,
        "next_number=self.next_number + (1 if is_next else 0))",
        "next_number=self.next_number)",
    ),
    Mutant(
        "another renewal of the same epoch is sent after one with other subnets",
        _RIGHT,
        "return replace(self, is_shown=False, is_left=True)",
        "return replace(self, is_shown=False)",
    ),
    Mutant(
        "a renewal after a lost epoch continues it",
        _RIGHT,
        "subnets != self.subnets or self.is_deleted or self.is_left",
        "subnets != self.subnets or self.is_deleted",
    ),
    Mutant(
        "a renewal after the deletion of the Lease continues the epoch",
        _RIGHT,
        "subnets != self.subnets or self.is_deleted or self.is_left",
        "subnets != self.subnets or self.is_left",
    ),
    Mutant(
        "a renewal with other subnets continues the epoch",
        _RIGHT,
        "ends = now >= self.ends_at or subnets != self.subnets or",
        "ends = now >= self.ends_at or",
    ),
    Mutant(
        "addresses are added before the watch has shown the own Lease",
        _RIGHT,
        "return self.is_shown and now < self.ends_at and self.deadline(now) is not None",
        "return now < self.ends_at and self.deadline(now) is not None",
    ),
    Mutant(
        "a node that holds by agreement adds addresses",
        _RIGHT,
        "return self.is_shown and now < self.ends_at and self.deadline(now) is not None",
        "return self.is_shown and self.deadline(now) is not None",
    ),
    Mutant(
        "an agreement restores a right that has ended",
        _RIGHT,
        "return replace(self, agreed=agreed) if self.deadline(now) else self",
        "return replace(self, agreed=agreed)",
    ),
    Mutant(
        "what was agreed on with other neighbors is valid in the next epoch",
        _RIGHT,
        "agreed=right.agreed if subnets == right.subnets else None,",
        "agreed=right.agreed,",
    ),
    Mutant(
        "a renewal from before the question shows that a node can renew",
        _RIGHT,
        "is_known = self.number > 0 and self.sent_at >= since",
        "is_known = self.number > 0",
    ),
    Mutant(
        "a node says that its renewals work while they fail",
        _RIGHT,
        "return is_known and self.is_quick and not self.is_failing",
        "return is_known and self.is_quick",
    ),
    Mutant(
        "a node whose renewals are slow renews too late for the next one",
        _RIGHT,
        "pause = self.timing.renew_deadline - 2 * self.took",
        "pause = self.timing.renew_deadline",
    ),
    Mutant(
        "a failed renewal is tried again only after the pause of good ones",
        _RIGHT,
        "            pause = min(pause, max(left / 2, _MIN_PAUSE))\n",
        "            pause = self.timing.renew_period\n",
    ),
    Mutant(
        "an epoch is said to be over although the node is in a later one",
        _RIGHT,
        "return self.deadline(now) is None and epoch != self._named(self.next_number)",
        "return epoch not in (self.epoch, self._named(self.next_number))",
    ),
    Mutant(
        "an epoch is said to be over although a renewal in it may be under way",
        _RIGHT,
        "return self.deadline(now) is None and epoch != self._named(self.next_number)",
        "return self.deadline(now) is None",
    ),
    Mutant(
        "of two epochs of one start, the tenth is earlier than the ninth",
        _RIGHT,
        "return (len(epoch), epoch) < (len(other), other)",
        "return epoch < other",
    ),
)

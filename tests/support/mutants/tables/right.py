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
        "self.sent_at + self.timing.renew_deadline,\n",
        "self.sent_at + self.timing.duration,\n",
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
        "sent_at, took, timing = renewal.sent_at, now - renewal.sent_at, renewal.timing",
        "sent_at, took, timing = now, now - renewal.sent_at, renewal.timing",
    ),
    Mutant(
        "a renewal with a shorter duration that may have been written ends nothing sooner",
        _RIGHT,
        "limit=renewal.deadline.limited_to(self.limit),",
        "limit=None,",
    ),
    Mutant(
        "a renewal is taken for one with the duration of the one before",
        _RIGHT,
        "            timing=timing,\n            sent_at=sent_at,",
        "            sent_at=sent_at,",
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
        "renewal.epoch == self.epoch and not is_ended and not is_late:",
        "renewal.epoch == self.epoch and not is_late:",
    ),
    Mutant(
        "a renewal continues an epoch whose right has ended",
        _RIGHT,
        "if has_right and renewal.epoch == self.epoch and",
        "if renewal.epoch == self.epoch and",
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
        "next_number=self.next_number + (1 if is_next else 0),",
        "next_number=self.next_number,",
    ),
    Mutant(
        "another renewal of the same epoch is sent after one with other subnets",
        _RIGHT,
        "is_left=self.is_left or number != self.number,",
        "is_left=self.is_left,",
    ),
    Mutant(
        "a renewal with another epoch does not leave the one before when it is sent",
        _RIGHT,
        "is_shown=self.is_shown and number == self.number,",
        "is_shown=self.is_shown,",
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
        "return self.number > 0 and self.sent_at >= since and not self.is_in_doubt",
        "return self.number > 0 and not self.is_in_doubt",
    ),
    Mutant(
        "a node says that its renewals work while they fail",
        _RIGHT,
        "return self.number > 0 and self.sent_at >= since and not self.is_in_doubt",
        "return self.number > 0 and self.sent_at >= since",
    ),
    Mutant(
        "a renewal that hangs raises no doubt",
        _RIGHT,
        "self.is_failing or len(self.under_way) > 1 or not self.is_quick",
        "self.is_failing or not self.is_quick",
    ),
    Mutant(
        "a renewal that fails raises no doubt",
        _RIGHT,
        "self.is_failing or len(self.under_way) > 1 or not self.is_quick",
        "len(self.under_way) > 1 or not self.is_quick",
    ),
    Mutant(
        "slow renewals end the doubt",
        _RIGHT,
        "self.is_failing or len(self.under_way) > 1 or not self.is_quick",
        "self.is_failing or len(self.under_way) > 1",
    ),
    Mutant(
        "renewals that were given up delay the next one",
        _RIGHT,
        "alone = replace(self, under_way=())",
        "alone = self",
    ),
    Mutant(
        "more renewals than two are under way at a time",
        _RIGHT,
        "if self.is_released or len(self.under_way) >= _MOST_UNDER_WAY:",
        "if self.is_released:",
    ),
    Mutant(
        "a node without a right writes each change at once",
        _RIGHT,
        "if self.under_way or self.state(now) is RightState.OVER:",
        "if self.under_way:",
    ),
    Mutant(
        "a Lease that another program deleted is not written again at once",
        _RIGHT,
        "return replace(self, is_shown=False, is_deleted=True).renewing(now)",
        "return replace(self, is_shown=False, is_deleted=True)",
    ),
    Mutant(
        "a node whose renewals are slow renews too late for the next one",
        _RIGHT,
        "pause = min(timing.renew_period, timing.renew_deadline - 2 * took)",
        "pause = self.timing.renew_period",
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

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which allocator leads, and that it allocates."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant

_LEADER = "plugins/module_utils/purelb/core/leadership/leader.py"
_ELECTOR = "agent/purelb_agent/leader/elector.py"
_WRITER = "agent/purelb_agent/leader/leader_kube.py"
_MAIN = "agent/purelb_agent/allocator/main.py"

MUTANTS = (
    Mutant(
        "a lock is free at once if this process did not see it renewed",
        _LEADER,
        "return now + min(record.duration or self.timing.duration, LONGEST_DURATION)",
        "return now",
    ),
    Mutant(
        "a lock that was released is not free before its duration has passed",
        _LEADER,
        'if record.holder in ("", self.identity):',
        "if record.holder == self.identity:",
    ),
    Mutant(
        "the own lock, whose answer was lost, is not free",
        _LEADER,
        'if record.holder in ("", self.identity):',
        'if record.holder == "":',
    ),
    Mutant(
        "a label on a dead leader's lock revives it",
        _LEADER,
        'return replace(self, version="") == replace(other, version="")',
        "return self == other",
    ),
    Mutant(
        "a leader does not notice that another one has its lock",
        _LEADER,
        "is_lost = self.state is LeaderState.LEADING and record.holder != self.identity",
        "is_lost = False",
    ),
    Mutant(
        "leadership counts from the answer to a renewal, not from its request",
        _LEADER,
        "fence_at=sent_at + self.timing.renew_deadline,",
        "fence_at=now + self.timing.renew_deadline,",
    ),
    Mutant(
        "leadership lasts as long as the lock, without the time for its last write",
        _LEADER,
        "fence_at=sent_at + self.timing.renew_deadline,",
        "fence_at=sent_at + self.timing.duration,",
    ),
    Mutant(
        "a leader writes after its leadership has ended",
        _LEADER,
        "return self.state is LeaderState.LEADING and now < self.fence_at",
        "return self.state is LeaderState.LEADING",
    ),
    Mutant(
        "a deleted lock is free at once",
        _LEADER,
        "return replace(self, exists=False, free_at=now + self.timing.duration)",
        "return replace(self, exists=False, free_at=now)",
    ),
    Mutant(
        "a lock of a store that was put back is free as it says",
        _LEADER,
        "            free_at = max(free_at, now + self.timing.duration)\n",
        "            pass\n",
    ),
    Mutant(
        "a replica whose write was refused never reads the lock again",
        _ELECTOR,
        "        if error.status in (CONFLICT, NOT_FOUND):\n            await self._read()",
        "        if error.status in (CONFLICT, NOT_FOUND):\n            pass",
    ),
    Mutant(
        "a leader that took over from another one never allocates",
        _ELECTOR,
        "        self.elected.set()\n",
        "        if not before:\n            self.elected.set()\n",
    ),
    Mutant(
        "a leader that ends releases a lock that another one has",
        _ELECTOR,
        "if record.holder != self._machine.identity:",
        "if not record.holder:",
    ),
    Mutant(
        "a write of the leader is not checked when its connection is open",
        _WRITER,
        "            self._seconds_left()\n            yield data",
        "            yield data",
    ),
    Mutant(
        "a leader that ends releases the lock while a write is under way",
        _WRITER,
        "        await asyncio.sleep(max(0.0, self._in_doubt_until - clock.now()))\n",
        "",
    ),
    Mutant(
        "a leader that ends does not release the lock",
        _MAIN,
        "                    await elector.release()\n",
        "",
    ),
)

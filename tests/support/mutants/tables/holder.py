# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The machine that connects right, Leases, permissions and outages, and what carries messages."""

from __future__ import annotations

from tests.support.mutants.mutant import Mutant

_CORE = "plugins/module_utils/purelb/core/holding"
_HOLDER = f"{_CORE}/holder.py"
_TALKS = f"{_CORE}/talks.py"
_OUTAGE = f"{_CORE}/outage.py"
_AGENT = "agent/purelb_agent"
_QUESTIONS = f"{_AGENT}/holding/questions.py"
_ENDS = f"{_AGENT}/holding/ends.py"

MUTANTS = (
    Mutant(
        "two nodes confirm each other that a third one can renew",
        _OUTAGE,
        "can = {p: a for p, a in said.items() if a.answer is PeerAnswer.CAN}",
        "can = {p: a for p, a in said.items() if a.answer in _ANY_CAN}",
    ),
    Mutant(
        "a node answers an asker with what the asker itself said",
        _OUTAGE,
        "if peer != question.asker)",
        "if peer)",
    ),
    Mutant(
        "what a peer said is passed on for a shorter time than others ask at",
        _OUTAGE,
        "duration = max(question.duration or _FOR_EVER, timing.duration)",
        "duration = min(question.duration or _FOR_EVER, timing.duration)",
    ),
    Mutant(
        "what a peer answered that can renew is kept when it cannot any more",
        _OUTAGE,
        "{p: h for p, h in self.heard.items() if p in silent or p not in said}",
        "dict(self.heard)",
    ),
    Mutant(
        "a node says that it cannot renew without the promise that goes with it",
        _HOLDER,
        "answer = PeerAnswer.KNOWS if promised is None else answer",
        "answer = PeerAnswer.CANNOT",
    ),
    Mutant(
        "a promise lasts for half of a Lease",
        _HOLDER,
        "until=now + seconds, listed",
        "until=now + seconds / 2, listed",
    ),
    Mutant(
        "a node promises nothing before it has listed the Leases",
        _HOLDER,
        "until=now + seconds, listed=is_listed)",
        "until=now + seconds, listed=True)",
    ),
    Mutant(
        "an agreement lasts as long as the own Lease, although a node promised less",
        _HOLDER,
        "extended_deadline(asked, said)",
        "extended_deadline(asked, {})",
    ),
    Mutant(
        "a node promises as long as its own Lease lasts, not the asker's",
        _HOLDER,
        "seconds = promise_seconds(question, timing)",
        "seconds = timing.duration",
    ),
    Mutant(
        "an agreement counts from its last answer, not from the question",
        _HOLDER,
        "extended_deadline(asked, said)",
        "extended_deadline(asked._replace(asked_at=now), said)",
    ),
    Mutant(
        "an agreement never lets a node hold its addresses for longer",
        _HOLDER,
        "        if found is OutageAssessment.HOLD:\n",
        "        if False:\n",
    ),
    Mutant(
        "only nodes whose Lease counts are members, so the rest may be less than half",
        _HOLDER,
        "frozenset((*self.counting.near(), self.node))",
        "frozenset((*self.counting.epochs(), self.node))",
    ),
    Mutant(
        "a node does not note that only it is cut off",
        _HOLDER,
        "self.right.cut_off(is_cut_off=found is OutageAssessment.ALONE_CUT_OFF)",
        "self.right",
    ),
    Mutant(
        "who is asked in an outage does not take that for a sign of life",
        _HOLDER,
        "        counting = counting.heard(asker, now=now)\n",
        "",
    ),
    Mutant(
        "a node says that its right is over while it still holds addresses",
        _HOLDER,
        "return held == _NOTHING and right.is_over(epoch, now)",
        "return right.is_over(epoch, now)",
    ),
    Mutant(
        "a node that holds nothing does not say that it has a right",
        _HOLDER,
        "        if deadline is not None:\n            return RightAnswer",
        "        if deadline is not None and self.held:\n            return RightAnswer",
    ),
    Mutant(
        "that a node says of its right how long it lasts is ignored",
        _HOLDER,
        "counting = counting.has_right(node, seconds=said.seconds, now=now)",
        "pass",
    ),
    Mutant(
        "what others promised a node whose Lease ends is ignored",
        _ENDS,
        "        for answer in answers:\n            self._hear_right(lease, answer)\n",
        "",
    ),
    Mutant(
        "that the asker for a right can renew is not heard",
        _ENDS,
        "        self._hear_can(body)\n        answer = ",
        "        answer = ",
    ),
    Mutant(
        "a node says to the others once only that its right is over",
        _HOLDER,
        "self.over.untold.difference(peers) if now < self.over.until else ()",
        "()",
    ),
    Mutant(
        "a node says that its right is over while it holds addresses, unasked",
        _HOLDER,
        "over = self.over if held else self._newly_over(now)",
        "over = self._newly_over(now)",
    ),
    Mutant(
        "a node never says unasked that its right is over",
        _QUESTIONS,
        "            self.over_reporter.begin()\n",
        "            pass\n",
    ),
    Mutant(
        "the task that says that a right is over is not started",
        f"{_AGENT}/node/main.py",
        '            tasks.start("over", self.questions.over_reporter.run())\n',
        "            pass\n",
    ),
    Mutant(
        "what a node could not withdraw is not taken back",
        _HOLDER,
        "            permissions = permissions.keeping(asked.question, held=held)\n",
        "            pass\n",
    ),
    Mutant(
        "a question that was refused is never asked again",
        _TALKS,
        "            *self.not_before.values(),\n",
        "",
    ),
    Mutant(
        "an answer does not say whom its node promised to count",
        _HOLDER,
        "                    promised=promised,\n",
        "",
    ),
    Mutant(
        "whom the answering node promised to count is ignored",
        _HOLDER,
        "            counting = counting.with_promised(answer.promised, now=now)\n",
        "",
    ),
    Mutant(
        "a node that knows too little does not look again",
        _QUESTIONS,
        "            self._look_anew()\n",
        "            pass\n",
    ),
    Mutant(
        "that another node's epoch is over is not believed",
        _HOLDER,
        "                counting = counting.said_over(peer, question.peer_epoch)\n",
        "                pass\n",
    ),
    Mutant(
        "questions in Leases are not answered",
        _HOLDER,
        "return holder.asked(asked, by_lease=True, now=now) if asked.asker == peer else holder",
        "return holder",
    ),
    Mutant(
        "what others say of Leases that have ended is ignored",
        _HOLDER,
        "            counting = counting.ended(node, epoch, now=now)\n",
        "            pass\n",
    ),
    Mutant(
        "a question for permissions is no sign that its asker lives",
        _HOLDER,
        "counting = self.counting.heard(question.asker, now=now)",
        "counting = self.counting",
    ),
    Mutant(
        "a node asks for permissions before it knows all Leases",
        _HOLDER,
        "        if not self.right.is_shown:\n            return self, ()\n",
        "",
    ),
    Mutant(
        "a node that joins next to a dead one waits for the end of its Lease",
        _HOLDER,
        "if free and any(permissions.asks_by_lease(peer) for peer in unmet):",
        "if free and all(permissions.asks_by_lease(peer) for peer in free):",
    ),
    Mutant(
        "who cannot be asked is given up as soon as a read succeeds after an outage",
        _HOLDER,
        "if not can_ask and asked_at < self.unread_at + _RETURN:",
        "if False:",
    ),
)

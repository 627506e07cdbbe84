# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Questions and answers that stand in Leases, for agents that do not reach each other.

A question stands in the Lease of the asker until it is answered in the Lease of the peer; a node
sees each of them as often as a Lease is renewed, and takes it once.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from purelb.core.holding.messages import Mail, mail_text, read_mail
from purelb.core.holding.permissions import PermissionAnswer, PermissionQuestion


class Mailbox:
    """What the Leases of others say to this node, and what its own says to them."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._read: dict[str, tuple[str, Mail]] = {}
        # By peer: the nonce of the last question that was taken, and its answer.
        self._taken: dict[str, str] = {}
        self._answers: dict[str, PermissionAnswer] = {}

    def read(
        self, peer: str, text: str
    ) -> tuple[PermissionAnswer | None, PermissionQuestion | None]:
        """Return the answer to this node in a peer's Lease, and a question that is new."""
        known, mail = self._read.get(peer, ("", Mail()))
        if known != text:
            mail = read_mail(text)
            self._read[peer] = (text, mail)
        answer = next((answer for asker, answer in mail.answers if asker == self._node), None)
        question = next((q for q in mail.questions if q.peer == self._node), None)
        if question is None:
            self._answers.pop(peer, None)
        elif self._taken.get(peer) == question.nonce or question.asker != peer:
            question = None
        else:
            self._taken[peer] = question.nonce
        return answer, question

    def answer(self, peer: str, answer: PermissionAnswer) -> None:
        """Answer the question in a peer's Lease."""
        self._answers[peer] = answer

    def text(self, questions: Iterable[PermissionQuestion], peers: Container[str]) -> str:
        """Return what the own Lease says, with these questions; empty if it is nothing.

        Of the answers only those to `peers`, the nodes that count.
        """
        self._answers = {p: answer for p, answer in sorted(self._answers.items()) if p in peers}
        return mail_text(Mail(tuple(questions), tuple(self._answers.items())))

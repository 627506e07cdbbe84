# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Whether the node's service proxy (kube-proxy) works, from what its health port answers.

Traffic for a VIP ends on its holder unless the service proxy takes it to a Pod, so a node whose
service proxy is dead should not be chosen. The load balancers of clouds ask the same port (10256,
path /healthz; KEP-3836). Clusters that replaced kube-proxy have nothing there; that is no fault.

A state that moves addresses is reached in two steps, so that nodes whose proxies end together all
say so (UNSURE) before the first of them is ILL: then there is none to prefer, and nothing moves.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ..election.members import ServiceProxy

# Seconds between two questions; where nothing has answered to so many of them from the beginning,
# there is probably no service proxy. How long one may take.
_ASKED_EVERY, _ABSENT_ASKED_EVERY, _ABSENT_AFTER = 5.0, 30.0, 24
ANSWERS_WITHIN = 2.0
# How many questions in a row without a good answer lead to each state, and how many good ones back.
_UNSURE_AFTER, _ILL_AFTER, _WELL_AFTER = 2, 4, 2


class Answer(Enum):
    """The answer to one question: NONE if nothing listens there, or not a service proxy."""

    GOOD = "good"
    BAD = "bad"
    NONE = "none"


@dataclass(frozen=True)
class ProxyHealth:
    """What the answers so far mean; `good` and `failed`: how many in a row were so."""

    state: ServiceProxy = ServiceProxy.UNKNOWN
    good: int = 0
    failed: int = 0

    @property
    def asked_every(self) -> float:
        """Seconds between this question and the next one."""
        is_absent = self.state is ServiceProxy.ABSENT and self.failed >= _ABSENT_AFTER
        return _ABSENT_ASKED_EVERY if is_absent else _ASKED_EVERY

    def answered(self, answer: Answer) -> ProxyHealth:
        """Return what it means with one more answer."""
        if answer is Answer.GOOD:
            good = self.good + 1
            is_back = self.state is not ServiceProxy.ILL or good >= _WELL_AFTER
            return ProxyHealth(ServiceProxy.WELL if is_back else self.state, good=good)
        failed = self.failed + 1
        return ProxyHealth(self._without(answer, failed), failed=failed)

    def _without(self, answer: Answer, failed: int) -> ServiceProxy:
        was_there = self.state not in (ServiceProxy.UNKNOWN, ServiceProxy.ABSENT)
        if answer is Answer.NONE and not was_there:
            return ServiceProxy.ABSENT
        if self.state is ServiceProxy.ILL or failed >= _ILL_AFTER:
            return ServiceProxy.ILL
        # Without a good answer yet, one that answers badly is not trusted from the beginning.
        if failed >= _UNSURE_AFTER or not was_there:
            return ServiceProxy.UNSURE
        return self.state

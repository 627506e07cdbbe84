# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What can go wrong with a cluster, as one line that says what to do.

Knows the API server's answers, not the client that fetched them, so that every text is tested
without either.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Optional

from ..core.errors import PureLBError

UNAUTHORIZED = 401
FORBIDDEN = 403
NOT_FOUND = 404
CONFLICT = 409
GONE = 410
TOO_MANY = 429
SERVER_ERROR = 500
# Server-side apply calls an object that does not fit its schema an internal error.
MISFIT = "failed to create typed patch object"


class ClusterError(PureLBError):
    """The cluster cannot be reached or did not do what it was asked."""


class ApiError(ClusterError):
    """An answer of the API server other than success."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Request:
    """What was asked of the API server, in the words of RBAC."""

    verb: str
    group: str
    resource: str
    namespace: Optional[str] = None
    name: Optional[str] = None

    def __str__(self) -> str:
        what = f"{self.resource}.{self.group}" if self.group else self.resource
        what = f"{what} {self.name}" if self.name else what
        return f"{self.verb} {what}" + (f" in namespace {self.namespace}" if self.namespace else "")


def refusal(request: Request, *, host: str, status: int, body: bytes) -> ApiError:
    """The error for an answer of the API server."""
    said = _message(body)
    if status == UNAUTHORIZED:
        text = (
            f"the API server at {host} does not accept the credentials (401): renew the "
            f"kubeconfig's login, or give another kubeconfig, context or api_key"
        )
    elif status == FORBIDDEN and "is forbidden: User " in said:
        text = (
            f"not allowed to {request} (403): add the rule {_rule(request)} to a "
            f"{_role(request)} of this user. The API server says: {said}"
        )
    elif status == CONFLICT:
        text = (
            f"cannot {request}: {said} (409); another program manages these fields: "
            f"leave them out, or set force_conflicts to take them over"
        )
    elif status == TOO_MANY or (status >= SERVER_ERROR and MISFIT not in said):
        text = f"cannot {request}: {said} ({status}, from {host}); try again later"
    else:
        text = f"cannot {request}: {said} ({status})"
    return ApiError(text, status=status)


def unreachable(host: str, *, cause: str) -> ClusterError:
    """The error for an API server that gave no answer."""
    if "CERTIFICATE_VERIFY_FAILED" in cause:
        return ClusterError(
            f"the certificate of the API server at {host} is not trusted: give ca_cert, or the "
            f"kubeconfig of this cluster ({cause})"
        )
    return ClusterError(
        f"cannot reach the API server at {host}: check that it is up and that the kubeconfig, "
        f"context or host is the right one ({cause})"
    )


def _message(body: bytes) -> str:
    """The text of a Status object; of anything else as much as fits a line."""
    try:
        status: Any = json.loads(body)
    except ValueError:
        status = None
    if isinstance(status, dict) and status.get("message"):
        return " ".join(str(status["message"]).split())
    return " ".join(body.decode("utf-8", "replace").split())[:300] or "no reason given"


def _rule(request: Request) -> str:
    rule: Dict[str, Any] = {
        "apiGroups": [request.group],
        "resources": [request.resource],
        "verbs": [request.verb],
    }
    return json.dumps(rule)


def _role(request: Request) -> str:
    return f"Role in namespace {request.namespace}" if request.namespace else "ClusterRole"

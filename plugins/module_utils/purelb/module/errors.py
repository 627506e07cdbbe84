# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Errors of the API server, each as one line with the cause and a remediation.

Independent of the client: built from status and body of a response, so that every text can be
tested without a server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Dict, Optional

from ..core.errors import PureLBError

UNAUTHORIZED = 401
FORBIDDEN = 403
NOT_FOUND = 404
NOT_ALLOWED = 405
CONFLICT = 409
GONE = 410
TOO_MANY = 429
SERVER_ERROR = 500
# Server-side apply reports an object that does not match its schema as an internal error.
SCHEMA_MISMATCH = "failed to create typed patch object"


class ClusterError(PureLBError):
    """The cluster cannot be reached or refused a request."""


class ApiError(ClusterError):
    """A response of the API server other than success."""

    def __init__(self, text: str, *, status: int) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Request:
    """A request to the API server, in the terms of RBAC."""

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
    """Returns the error for a response of the API server."""
    message = _message(body)
    if status == UNAUTHORIZED:
        text = (
            f"the API server at {host} does not accept the credentials (401): renew the login of "
            f"the kubeconfig, or give another kubeconfig, context or api_key"
        )
    elif status == FORBIDDEN and " cannot impersonate" in message:
        text = (
            f"not allowed to act as another user for {request} (403): grant this user the verb "
            f"impersonate, or leave out impersonate_user, impersonate_groups and the kubeconfig's "
            f"as. The API server says: {message}"
        )
    elif status == FORBIDDEN and "is forbidden: User " in message:
        text = (
            f"not allowed to {request} (403): add the rule {_rule(request)} to a "
            f"{_role(request)} of this user. The API server says: {message}"
        )
    elif status == CONFLICT:
        text = (
            f"cannot {request}: {message} (409); another program manages these fields: "
            f"remove them from the task, or set force_conflicts to take them over"
        )
    elif status == TOO_MANY or (status >= SERVER_ERROR and SCHEMA_MISMATCH not in message):
        text = f"cannot {request}: {message} ({status}, from {host}); try again later"
    else:
        text = f"cannot {request}: {message} ({status})"
    return ApiError(text, status=status)


def unreachable(host: str, *, cause: str) -> ClusterError:
    """Returns the error for an API server that did not respond."""
    if "CERTIFICATE_VERIFY_FAILED" in cause:
        return ClusterError(
            f"the certificate of the API server at {host} is not trusted: give ca_cert, or the "
            f"kubeconfig of this cluster ({cause})"
        )
    return ClusterError(
        f"cannot reach the API server at {host}: check that it is up and that kubeconfig, "
        f"context and host are correct ({cause})"
    )


def _message(body: bytes) -> str:
    """Returns the message of a Status object; of any other body the first 300 characters."""
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

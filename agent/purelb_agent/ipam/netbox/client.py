# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""One short conversation with a NetBox: the HTTP session, its time limit, and what its errors mean.

Blocking, so for a thread of its own. Nothing is sent after the deadline: whoever asked has been
told by then that it failed. The token goes into one header and into no text.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pynetbox
import requests
from requests.adapters import HTTPAdapter

from purelb_agent.ipam.port import IpamError

TOKEN_FILE, CA_FILE = "token", "ca.crt"
_MEND_TOKEN = (
    f"put a NetBox token as {TOKEN_FILE!r} into the Secret that purelb_install_netbox_secret names"
)
_MENDS = {
    401: _MEND_TOKEN,
    403: f"{_MEND_TOKEN}; its user needs to view and change IP addresses and to view tenants",
    404: "write the address of the NetBox into spec.netbox.url, without /api",
}
_BUSY = 429
_SERVER_ERROR = 500
_REDIRECT = range(300, 400)


@dataclass(frozen=True)
class Login:
    """Where the Secret's files are, and what they say at this moment."""

    folder: Path

    def token(self) -> str:
        """The token; IpamError where there is none."""
        try:
            token = (self.folder / TOKEN_FILE).read_text().strip()
        except (OSError, ValueError):
            token = ""
        # A header can carry nothing else, and the error of one that is refused would show it.
        if not (token and token.isascii() and token.isprintable() and " " not in token):
            raise IpamError(f"there is no token for NetBox: {_MEND_TOKEN}", is_permanent=True)
        return token

    def authority(self) -> str | bool:
        """The file to judge certificates by; True is those that everybody knows."""
        file = self.folder / CA_FILE
        return str(file) if file.exists() else True


class Session(requests.Session):
    """Sends until a deadline, and changes only what is still as it was last read alone.

    `etag` is the version of what was read last; "" where NetBox, before 4.6, tells none.
    """

    def __init__(self, *, verify: str | bool, seconds: float) -> None:
        super().__init__()
        self.etag = ""
        self._verify = verify
        self._deadline = time.monotonic() + seconds
        # Each attempt is the allocator's to make.
        self.mount("https://", HTTPAdapter(max_retries=0))

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - time.monotonic()

    def request(self, method: Any, url: Any, **more: Any) -> requests.Response:  # type: ignore[override]
        """Send a request in the time that is left."""
        if self.left <= 0:
            raise requests.Timeout
        if str(method).upper() == "PATCH" and self.etag:
            more["headers"] = {**(more.get("headers") or {}), "If-Match": self.etag}
        # Given with the request, as the environment would otherwise come before the Secret.
        more |= {"timeout": self.left, "verify": self._verify, "allow_redirects": False}
        answer = super().request(method, url, **more)
        if answer.status_code in _REDIRECT:
            target = answer.headers.get("Location", "elsewhere")
            raise IpamError(
                f"it redirects to {target}: write that address into spec.netbox.url",
                is_permanent=True,
            )
        self.etag = answer.headers.get("ETag", "")
        return answer


@contextmanager
def conversation(url: str, login: Login, *, seconds: float) -> Iterator[pynetbox.api]:
    """A NetBox to talk to; what goes wrong is raised as an IpamError."""
    with Session(verify=login.authority(), seconds=seconds) as session:
        api = pynetbox.api(url, token=login.token())
        api.http_session.close()
        api.http_session = session
        try:
            yield api
        except pynetbox.RequestError as problem:
            raise _refused(problem.req) from problem
        except pynetbox.ContentError as problem:
            raise IpamError(
                f"what answers is no NetBox: {_MENDS[404]}", is_permanent=True
            ) from problem
        except requests.RequestException as problem:
            raise _unreachable(problem, seconds) from problem
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            # pynetbox and we take what is there for what should be there.
            raise IpamError(
                f"it does not answer as a NetBox does ({problem}): {_MENDS[404]}", is_permanent=True
            ) from problem
        except OSError as problem:
            # requests finds the file of certificates unreadable.
            raise IpamError(f"its {CA_FILE} cannot be used: {problem}", is_permanent=True) from None


def _refused(answer: requests.Response) -> IpamError:
    try:
        detail = str(answer.json().get("detail") or answer.json())
    except (ValueError, AttributeError):
        detail = answer.reason
    status = answer.status_code
    remediation = f"; {_MENDS[status]}" if status in _MENDS else ""
    is_passing = status == _BUSY or status >= _SERVER_ERROR
    return IpamError(
        f"it answers {status}: {detail[:200]}{remediation}", is_permanent=not is_passing
    )


def _unreachable(problem: requests.RequestException, seconds: float) -> IpamError:
    if isinstance(problem, requests.exceptions.SSLError):
        return IpamError(
            f"its certificate is not trusted ({_cause(problem)}): put the certificates of who "
            f"signed it as {CA_FILE!r} into the same Secret as the token",
            is_permanent=True,
        )
    if isinstance(problem, requests.Timeout):
        return IpamError(f"no answer within {seconds:g} s")
    return IpamError(f"it cannot be reached: {_cause(problem)}")


def _cause(problem: BaseException) -> str:
    """The innermost reason, without the addresses of objects around it."""
    reason = problem
    while True:
        inner = getattr(reason, "reason", None) or next(iter(reason.args), None)
        if not isinstance(inner, BaseException):
            break
        reason = inner
    return str(reason).rpartition(">: ")[2][:200]

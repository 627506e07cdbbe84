# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A short conversation with a NetBox: the HTTP session, its deadline, the meaning of its errors.

Blocks, so it runs in a thread of its own. Sends nothing after the deadline, because the caller has
raised an error by then. The token goes into one header and into no text.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pynetbox
import requests
from requests.adapters import HTTPAdapter

from purelb_agent.ipam.port import IpamError

TOKEN_FILE, CA_FILE = "token", "ca.crt"
_TOKEN_REMEDY = (
    f"put a NetBox token as {TOKEN_FILE!r} into the Secret that purelb_install_netbox_secret names"
)
_REMEDIES = {
    401: _TOKEN_REMEDY,
    403: f"{_TOKEN_REMEDY}; its user needs to view and change IP addresses and to view tenants",
    404: "write the address of the NetBox into spec.netbox.url, without /api",
}
_BUSY = 429
_SERVER_ERROR = 500
_REDIRECT = range(300, 400)
_PORTS = {"http": 80, "https": 443}


def _origin(url: str) -> tuple[str, str | None, int | None]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or _PORTS.get(parts.scheme)


@dataclass(frozen=True)
class Login:
    """The folder of the mounted Secret; its files are read again each time."""

    folder: Path

    def token(self) -> str:
        """Return the token; IpamError if there is none."""
        try:
            token = (self.folder / TOKEN_FILE).read_text().strip()
        except (OSError, ValueError):
            token = ""
        # A header can carry nothing else, and the error about an invalid one would show it.
        if not (token and token.isascii() and token.isprintable() and " " not in token):
            raise IpamError(f"there is no token for NetBox: {_TOKEN_REMEDY}", is_permanent=True)
        return token

    def authority(self) -> str | bool:
        """Return the file of trusted certificates; True for the public authorities."""
        file = self.folder / CA_FILE
        return str(file) if file.exists() else True


class _Adapter(HTTPAdapter):
    """Closes its connections with the session.

    urllib3 closes them once nothing refers to their pool, but a raised error refers to the answer
    that it is about, and that to the pool.
    """

    def close(self) -> None:
        """Close every connection."""
        for manager in (self.poolmanager, *self.proxy_manager.values()):
            for key in tuple(manager.pools.keys()):
                manager.pools[key].close()
        super().close()


class Session(requests.Session):
    """Sends to one server until a deadline; a PATCH succeeds only if the object is as it was read.

    Other servers get nothing: a page names the URL of the next one, where the token would go, too.
    `etag` is the version of the object read last; "" with a NetBox before 4.6, which sends none.
    """

    def __init__(self, url: str, *, verify: str | bool, seconds: float) -> None:
        super().__init__()
        self._url = url
        self.etag = ""
        self._verify = verify
        self._deadline = time.monotonic() + seconds
        # The allocator retries, not the session.
        for scheme in ("http://", "https://"):
            self.mount(scheme, _Adapter(max_retries=0))

    @property
    def left(self) -> float:
        """Seconds until the deadline."""
        return self._deadline - time.monotonic()

    def request(self, method: Any, url: Any, **more: Any) -> requests.Response:  # type: ignore[override]
        """Send a request within the time that is left."""
        if self.left <= 0:
            raise requests.Timeout
        if _origin(str(url)) != _origin(self._url):
            raise IpamError(
                f"its list continues at {str(url).partition('?')[0]}, another server: let a proxy "
                "before the NetBox pass on Host and X-Forwarded-Proto, or correct spec.netbox.url",
                is_permanent=True,
            )
        if str(method).upper() == "PATCH" and self.etag:
            more["headers"] = {**(more.get("headers") or {}), "If-Match": self.etag}
        # Passed with the request, because the environment would otherwise override the Secret.
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
    """Yield a NetBox client; every failure is raised as an IpamError."""
    with Session(url, verify=login.authority(), seconds=seconds) as session:
        api = pynetbox.api(url, token=login.token())
        api.http_session.close()
        api.http_session = session
        try:
            yield api
        except pynetbox.RequestError as error:
            raise _refused(error.req) from error
        except pynetbox.ContentError as error:
            raise IpamError(
                f"what answers is no NetBox: {_REMEDIES[404]}", is_permanent=True
            ) from error
        except requests.RequestException as error:
            raise _unreachable(error, seconds) from error
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            # Neither pynetbox nor this code checks the fields of an answer.
            raise IpamError(
                f"it does not answer as a NetBox does ({error}): {_REMEDIES[404]}",
                is_permanent=True,
            ) from error
        except OSError as error:
            # requests cannot read the file of certificates.
            raise IpamError(f"its {CA_FILE} cannot be used: {error}", is_permanent=True) from None


def _refused(answer: requests.Response) -> IpamError:
    try:
        detail = str(answer.json().get("detail") or answer.json())
    except (ValueError, AttributeError):
        detail = answer.reason
    status = answer.status_code
    remediation = f"; {_REMEDIES[status]}" if status in _REMEDIES else ""
    is_transient = status == _BUSY or status >= _SERVER_ERROR
    return IpamError(
        f"it answers {status}: {detail[:200]}{remediation}", is_permanent=not is_transient
    )


def _unreachable(error: requests.RequestException, seconds: float) -> IpamError:
    if isinstance(error, requests.exceptions.SSLError):
        return IpamError(
            f"its certificate is not trusted ({_cause(error)}): put the certificate of its "
            f"issuer as {CA_FILE!r} into the same Secret as the token",
            is_permanent=True,
        )
    if isinstance(error, requests.Timeout):
        return IpamError(f"no answer within {seconds:g} s")
    return IpamError(f"it cannot be reached: {_cause(error)}")


def _cause(error: BaseException) -> str:
    """Return the innermost reason without the object addresses around it."""
    reason = error
    while True:
        inner = getattr(reason, "reason", None) or next(iter(reason.args), None)
        if not isinstance(inner, BaseException):
            break
        reason = inner
    return str(reason).rpartition(">: ")[2][:200]

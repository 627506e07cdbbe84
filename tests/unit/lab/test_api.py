# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What waits for the API server takes for "not yet", and what ends the wait."""

import errno
import http.client
import ssl
from typing import Any

import pytest

from labkit.api import Api, ApiError, is_transient
from labkit.errors import LabError
from tests.support.lab.cluster_queries import eventually

TRANSIENT = [
    ApiError(429, "too many requests"),
    ApiError(500, "etcdserver: leader changed"),
    ApiError(503, "apiserver not ready"),
    ConnectionRefusedError(),
    ConnectionResetError(),
    http.client.RemoteDisconnected(),
    http.client.IncompleteRead(b""),
    ssl.SSLEOFError(),
    TimeoutError(),
    OSError(errno.EHOSTUNREACH, "no route to host"),
]
OTHERS = [
    ApiError(403, "forbidden"),
    ApiError(409, "conflict"),
    FileNotFoundError(),
    OSError(errno.EMFILE, "too many open files"),
    KeyError("status"),
    AssertionError(),
]
names = {"ids": lambda error: f"{error!r}"[:40]}


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch):
    """A client whose requests end with these errors and objects."""
    client = Api.__new__(Api)

    def answers(*given: Any) -> Api:
        left = list(given)

        def find(_path: str) -> Any:
            answer = left.pop(0) if len(left) > 1 else left[0]
            if isinstance(answer, Exception):
                raise answer
            return answer

        monkeypatch.setattr(client, "find", find)
        return client

    return answers


@pytest.mark.parametrize("error", TRANSIENT, **names)
def test_waits_repeat_a_request_that_may_succeed_later(api, error: Exception):
    assert is_transient(error)
    assert api(error, None, {"status": {}}).wait("/x", seconds=5) == {"status": {}}
    client = api(error, 7)
    assert eventually(lambda: client.find("/x"), "seven") == 7


@pytest.mark.parametrize("error", OTHERS, **names)
def test_waits_end_with_any_other_error(api, error: Exception):
    assert not is_transient(error)
    with pytest.raises(type(error)):
        api(error, {"status": {}}).wait("/x")
    client = api(error, 7)
    with pytest.raises(type(error)):
        eventually(lambda: client.find("/x"), "seven")


def test_failed_waits_name_the_last_failed_request(api):
    with pytest.raises(LabError, match=r"status: null; last failed request: .*429: slow down"):
        api(ApiError(429, "slow down")).wait("/x", seconds=0.1)
    last = r"no seven within 0.1 s, but 0; last failed request: ConnectionResetError"
    client = api(ConnectionResetError(), 0)
    with pytest.raises(AssertionError, match=last):
        eventually(lambda: client.find("/x"), "seven", seconds=0.1)

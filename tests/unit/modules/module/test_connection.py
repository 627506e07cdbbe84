# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
import yaml

pytest.importorskip("kubernetes")
from purelb.module import connection
from purelb.module.errors import ClusterError


@pytest.fixture
def kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "config"
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "one", "cluster": {"server": "https://one:6443"}},
            {"name": "two", "cluster": {"server": "https://two:6443"}},
        ],
        "users": [{"name": "me", "user": {"token": "t"}}],
        "contexts": [
            {"name": "one", "context": {"cluster": "one", "user": "me"}},
            {"name": "two", "context": {"cluster": "two", "user": "me"}},
        ],
        "current-context": "one",
    }
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.mark.parametrize(
    ("context", "host"), [(None, "https://one:6443"), ("two", "https://two:6443")]
)
def test_the_context_selects_the_cluster(kubeconfig: Path, context: str | None, host: str):
    assert connection.connect({"kubeconfig": str(kubeconfig), "context": context}).host == host


def test_an_unknown_context_is_an_error_that_names_the_others(kubeconfig: Path):
    with pytest.raises(ClusterError, match="no context three; it has: one, two"):
        connection.connect({"kubeconfig": str(kubeconfig), "context": "three"})


def test_a_missing_kubeconfig_is_an_error_with_its_path(tmp_path: Path, kubeconfig: Path):
    with pytest.raises(ClusterError, match=r"no kubeconfig: .*/nowhere does not exist"):
        connection.connect({"kubeconfig": str(tmp_path / "nowhere")})


def test_a_missing_kubeconfig_that_is_relative_says_where_it_was_looked_for(kubeconfig: Path):
    with pytest.raises(ClusterError, match=r"no kubeconfig: /.*/nowhere .*: give an absolute path"):
        connection.connect({"kubeconfig": "nowhere"})


@pytest.mark.parametrize(
    ("context", "host"), [(None, "https://one:6443"), ("two", "https://two:6443")]
)
def test_a_kubeconfig_may_be_a_dictionary(kubeconfig: Path, context: str | None, host: str):
    content = yaml.safe_load(kubeconfig.read_text())
    assert connection.connect({"kubeconfig": content, "context": context}).host == host


def test_an_unknown_context_of_a_dictionary_is_an_error_that_names_the_others(kubeconfig: Path):
    content = yaml.safe_load(kubeconfig.read_text())
    with pytest.raises(ClusterError, match="no context three; it has: one, two"):
        connection.connect({"kubeconfig": content, "context": "three"})


@pytest.mark.parametrize("content", [{"a": "b"}, {"contexts": "x"}, {"current-context": "y"}])
def test_a_dictionary_that_is_no_kubeconfig_is_an_error(content: dict[str, str]):
    with pytest.raises(ClusterError, match="the kubeconfig cannot be used"):
        connection.connect({"kubeconfig": content})


def test_a_kubeconfig_as_text_is_an_error_that_does_not_quote_it(kubeconfig: Path):
    with pytest.raises(ClusterError, match=r"^kubeconfig is neither .* dictionary \(.*\)$"):
        connection.connect({"kubeconfig": kubeconfig.read_text()})


def test_an_invalid_kubeconfig_is_named(tmp_path: Path, kubeconfig: Path):
    (tmp_path / "empty").write_text("{}")
    with pytest.raises(ClusterError, match="empty cannot be used"):
        connection.connect({"kubeconfig": str(tmp_path / "empty")})


def test_a_host_needs_no_kubeconfig():
    assert connection.connect({"host": "https://api:6443"}).host == "https://api:6443"


def headers_of(params: dict[str, Any]) -> list[tuple[str, str]]:
    """Return whom a client acts as, and its user with a password."""
    ours = {"Accept", "User-Agent"}
    sent = connection.connect(params)._headers  # noqa: SLF001 - what is sent
    return [(name, value) for name, value in sent if name not in ours]


ACTOR = {
    "token": "t",
    "as": "jane",
    "as-uid": "7",
    "as-groups": ["a", "b"],
    "as-user-extra": {"example.com/Scope": ["x", "y"]},
}
ACTING = [
    ("Impersonate-User", "jane"),
    ("Impersonate-Group", "a"),
    ("Impersonate-Group", "b"),
    ("Impersonate-Uid", "7"),
    ("Impersonate-Extra-example.com%2FScope", "x"),
    ("Impersonate-Extra-example.com%2FScope", "y"),
]


@pytest.mark.parametrize("context", [None, "two"])
def test_who_the_kubeconfig_says_to_act_as_is_who_acts(kubeconfig: Path, context: str | None):
    content = yaml.safe_load(kubeconfig.read_text())
    assert headers_of({"kubeconfig": content, "context": context}) == []
    content["users"][0]["user"] = ACTOR
    kubeconfig.write_text(yaml.safe_dump(content))
    assert headers_of({"kubeconfig": content, "context": context}) == ACTING
    assert headers_of({"kubeconfig": str(kubeconfig), "context": context}) == ACTING


def test_options_come_before_the_kubeconfig(kubeconfig: Path):
    content = yaml.safe_load(kubeconfig.read_text())
    content["users"][0]["user"] = ACTOR
    given = {"kubeconfig": content}
    assert headers_of({**given, "impersonate_user": "me"}) == [("Impersonate-User", "me")]
    groups = headers_of({**given, "impersonate_groups": ["c"]})
    assert ("Impersonate-Group", "c") in groups
    assert ("Impersonate-Group", "a") not in groups


def test_a_kubeconfig_whose_context_names_no_user(kubeconfig: Path):
    content = yaml.safe_load(kubeconfig.read_text())
    del content["contexts"][0]["context"]["user"]
    assert headers_of({"kubeconfig": content}) == []


def test_a_user_with_a_password():
    (header,) = headers_of({"host": "https://api:6443", "username": "me", "password": "p"})
    assert header == ("Authorization", "Basic " + base64.b64encode(b"me:p").decode())


def test_a_proxy_is_used_unless_the_host_is_excepted():
    given = {
        "host": "https://api:6443",
        "proxy": "http://proxy:3128",
        "proxy_headers": {"proxy_basic_auth": "me:p", "user_agent": None},
    }
    pool = connection.connect(given)._pool  # noqa: SLF001 - what it connects through
    assert pool.proxy.host == "proxy"
    assert pool.proxy_headers == {"proxy-authorization": "Basic bWU6cA=="}
    direct = connection.connect({**given, "no_proxy": "api"})._pool  # noqa: SLF001 - as above
    assert direct.proxy is None


def test_options_of_certificates():
    given = {"host": "https://api:6443", "validate_certs": False, "api_key": "t"}
    cluster = connection.connect(given)
    assert cluster._configuration.verify_ssl is False  # noqa: SLF001 - what it was told
    assert cluster._configuration.api_key == {"authorization": "Bearer t"}  # noqa: SLF001 - as above

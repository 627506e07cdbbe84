# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

from purelb.module.secrets import all_texts, secrets


def kubeconfig(user: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "default", "cluster": {"server": "https://one:6443"}}],
        "users": [{"name": "default", "user": user}],
        "contexts": [{"name": "default", "context": {"cluster": "default", "user": "default"}}],
        "current-context": "default",
    }


def test_names_and_servers_are_not_secret():
    given = kubeconfig({"token": "abc"})
    assert secrets(given) == {"abc"}
    assert all_texts(given) == {"v1", "Config", "default", "https://one:6443", "abc"}


def test_everything_of_a_user_is_secret():
    provider = {"name": "oidc", "config": {"refresh-token": "abc"}}
    given = kubeconfig({"client-key-data": "key", "auth-provider": provider})
    assert secrets(given) == {"key", "oidc", "abc"}


def test_of_a_login_program_short_arguments_are_words():
    login = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "aws",
        "args": ["get", "--secret=abc"],
        "env": [{"name": "KEY", "value": "0123456789"}],
    }
    assert secrets(kubeconfig({"exec": login})) == {"--secret=abc", "0123456789"}


def test_a_proxy_may_have_a_password():
    given = kubeconfig({})
    given["clusters"][0]["cluster"]["proxy-url"] = "http://me:abc@proxy"
    assert secrets(given) == {"http://me:abc@proxy"}


@pytest.mark.parametrize("given", [{"users": "abc"}, {"users": ["abc"]}, {"clusters": ["abc"]}])
def test_all_of_what_is_no_kubeconfig_is_secret(given: Any):
    assert secrets(given) == {"abc"}


@pytest.mark.parametrize(
    ("given", "hidden"),
    [
        (None, set()),
        ("/root/.kube/config", set()),
        ("users:\n- abc", {"users:\n- abc"}),
        (["abc"], {"abc"}),
    ],
)
def test_a_path_is_not_secret_and_a_text_is(given: Any, hidden: set[str]):
    assert secrets(given) == hidden

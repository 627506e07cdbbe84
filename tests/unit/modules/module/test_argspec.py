# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib

import pytest
import yaml

from purelb.module import argspec

ROOT = "ansible_collections.purelb.purelb.plugins.doc_fragments"


def test_parts_are_merged_with_their_rules():
    merged = argspec.connection().merge(argspec.namespace())
    assert "kubeconfig" in merged.options
    assert "namespace" in merged.options
    assert merged.arguments()["required_together"] == [["client_cert", "client_key"]]


def test_rules_of_both_parts_apply():
    first = argspec.ArgumentSpec({"a": {}, "b": {}}, mutually_exclusive=(("a", "b"),))
    other = argspec.ArgumentSpec({"c": {}}, required_if=(("c", True, ("a",)),))
    merged = first.merge(other).arguments()
    assert merged["mutually_exclusive"] == [["a", "b"]]
    assert merged["required_if"] == [["c", True, ("a",)]]


def test_an_option_defined_twice_is_an_error():
    with pytest.raises(ValueError, match="defined twice: namespace"):
        argspec.namespace().merge(argspec.namespace())


def test_the_token_is_not_logged():
    assert argspec.connection().options["api_key"]["no_log"] is True


@pytest.mark.parametrize("name", ["connection", "namespace", "presence", "metadata"])
def test_the_documentation_has_the_same_options(name: str):
    fragment = importlib.import_module(f"{ROOT}.{name}").ModuleDocFragment
    documented = yaml.safe_load(fragment.DOCUMENTATION)["options"]
    specified = getattr(argspec, name)().options
    assert documented.keys() == specified.keys()
    for option, text in documented.items():
        assert text["type"] == specified[option]["type"]
        assert text.get("default") == specified[option].get("default")
        assert text.get("choices") == specified[option].get("choices")
        assert text.get("aliases") == specified[option].get("aliases")


def test_the_documentation_names_every_variable():
    fragment = importlib.import_module(f"{ROOT}.connection").ModuleDocFragment
    documented = yaml.safe_load(fragment.DOCUMENTATION)["options"]
    options = argspec.connection().options
    inner = options["proxy_headers"]["options"]
    assert inner.keys() == documented["proxy_headers"]["suboptions"].keys()
    for option in (*options.values(), *inner.values()):
        for variable in option.get("fallback", ((), ()))[1]:
            assert f"E({variable})" in fragment.DOCUMENTATION


def test_connections_are_those_of_other_collections():
    """As the collection kubernetes.core names them, with its variables and aliases."""
    known = """kubeconfig context host api_key username password proxy no_proxy proxy_headers
        persist_config impersonate_user impersonate_groups ca_cert ssl_ca_cert validate_certs
        verify_ssl client_cert cert_file client_key key_file"""
    options = argspec.connection().options
    named = {*options, *(alias for each in options.values() for alias in each.get("aliases", ()))}
    assert named == set(known.split())
    variables = """API_KEY CERT_FILE CONTEXT HOST IMPERSONATE_GROUPS IMPERSONATE_USER KEY_FILE
        KUBECONFIG NO_PROXY PASSWORD PERSIST_CONFIG PROXY SSL_CA_CERT USERNAME VERIFY_SSL
        PROXY_HEADERS_BASIC_AUTH PROXY_HEADERS_PROXY_BASIC_AUTH PROXY_HEADERS_USER_AGENT"""
    inner = options["proxy_headers"]["options"]
    read = {
        variable.removeprefix("K8S_AUTH_")
        for option in (*options.values(), *inner.values())
        for variable in option.get("fallback", ((), ()))[1]
        if variable.startswith("K8S_AUTH_")
    }
    assert read == set(variables.split())

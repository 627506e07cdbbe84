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


def test_the_documentation_names_every_variable():
    fragment = importlib.import_module(f"{ROOT}.connection").ModuleDocFragment
    for option in argspec.connection().options.values():
        for variable in option["fallback"][1]:
            assert f"E({variable})" in fragment.DOCUMENTATION

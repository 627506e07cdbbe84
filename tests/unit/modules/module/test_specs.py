# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The options of ServiceGroup and LBNodeAgent match the definitions and the documentation."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from tests.support import ROOT

pytest.importorskip("kubernetes")
from purelb.module import argspec, specs
from purelb.module.fields import field_name

CRDS = ROOT / "roles" / "purelb_install" / "files" / "crds"
MODULES = "ansible_collections.purelb.purelb.plugins.modules"
TYPES = {"object": "dict", "array": "list", "string": "str", "boolean": "bool", "integer": "int"}
KINDS = [
    pytest.param("servicegroups", specs.service_group, "purelb_service_group", id="ServiceGroup"),
    pytest.param("lbnodeagents", specs.node_agent, "purelb_lb_node_agent", id="LBNodeAgent"),
]


def shape(schema: dict[str, Any], path: str) -> Iterator[tuple[str, str, bool, Any]]:
    """Yields path, type, whether it is required, and choices of each field of a schema."""
    for name, field in schema.get("properties", {}).items():
        items = field.get("items", field)
        needed = name in schema.get("required", ())
        yield f"{path}.{name}", TYPES[field["type"]], needed, items.get("enum")
        yield from shape(items, f"{path}.{name}")


def shape_of_options(options: dict[str, Any], path: str) -> Iterator[tuple[str, str, bool, Any]]:
    for name, option in options.items():
        inner = f"{path}.{field_name(name)}"
        yield inner, option["type"], option.get("required", False), option.get("choices")
        yield from shape_of_options(option.get("options", {}), inner)


@pytest.mark.parametrize(("plural", "options", "_module"), KINDS)
def test_each_field_of_the_definition_is_an_option(plural: str, options: Any, _module: str):
    definition = yaml.safe_load((CRDS / f"{plural}.purelb.io.yaml").read_text())
    (version,) = (each for each in definition["spec"]["versions"] if each["storage"])
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert set(map(str, shape_of_options(options().options, ""))) == set(map(str, shape(spec, "")))


@pytest.mark.parametrize(("_plural", "options", "module"), KINDS)
def test_each_option_matches_its_documentation(_plural: str, options: Any, module: str):
    text = importlib.import_module(f"{MODULES}.{module}").DOCUMENTATION
    documented = yaml.safe_load(text)["options"]
    compare(options().options, {k: v for k, v in documented.items() if "wait" not in k})


def compare(options: dict[str, Any], documented: dict[str, Any]) -> None:
    assert options.keys() == documented.keys()
    for name, option in options.items():
        text = documented[name]
        for part in ("type", "elements", "required", "choices"):
            assert option.get(part) == text.get(part), name
        compare(option.get("options", {}), text.get("suboptions", {}))


POOL = {"pool": "10.0.0.0/28", "subnet": "10.0.0.0/24"}


def problems(spec: argspec.ArgumentSpec, **given: Any) -> str:
    whole = argspec.presence().merge(argspec.metadata()).merge(spec).arguments()
    rules = {"mutually_exclusive", "required_together", "required_if"}
    validator = ArgumentSpecValidator(
        whole["argument_spec"], **{rule: whole[rule] for rule in rules}
    )
    return "; ".join(validator.validate({"name": "one", **given}).error_messages)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({}, "any of the following are missing: local, remote, netbox, external"),
        ({"local": {"v4pool": POOL}, "remote": {"v4pool": POOL}}, "mutually exclusive"),
        ({"local": {}}, "one of the following is required: v4pool, v4pools, v6pool, v6pools"),
        ({"local": {"v4pool": POOL, "v4pools": [POOL]}}, "mutually exclusive: v4pool|v4pools"),
        ({"remote": {"v6pool": POOL, "v6pools": [POOL]}}, "mutually exclusive: v6pool|v6pools"),
        ({"local": {"v4pool": {"pool": "10.0.0.0/28"}}}, "missing required arguments: subnet"),
        ({"local": {"v4pool": {**POOL, "mask": 24}}}, "local.v4pool.mask. Supported"),
        ({"netbox": {"url": "https://n"}}, "missing required arguments: tenant"),
        ({"external": {"provider": "a", "announce": "bgp"}}, "must be one of: local, remote"),
    ],
)
def test_an_invalid_group_is_refused_without_a_cluster(given: Any, problem: str):
    assert problem in problems(specs.service_group(), **given)


@pytest.mark.parametrize(
    ("local", "problem"),
    [
        ({"garp_config": {"interval": "1s", "interval_ms": 1000}}, "interval|interval_ms"),
        ({"garp_config": {"delay_ms": 1, "initial_delay": "1s"}}, "initial_delay|delay_ms"),
        ({"garp_config": {"count": "many"}}, "count"),
    ],
)
def test_invalid_settings_are_refused_without_a_cluster(local: Any, problem: str):
    assert problem in problems(specs.node_agent(), local=local)


def test_removal_needs_only_a_name():
    assert problems(specs.service_group(), state="absent") == ""


def test_no_option_has_a_default():
    assert problems(specs.node_agent()) == ""
    defaults = [o for o in specs.node_agent().options.values() if "default" in o]
    assert defaults == []

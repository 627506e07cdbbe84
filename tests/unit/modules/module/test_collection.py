# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the collection states twice is the same in both places."""

from __future__ import annotations

import base64
import hashlib
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.purelb.purelb.plugins.filter.setting_problem import (
    setting_problem,
)
from purelb.apply import permissions
from purelb.core.migration.convert import DEFAULTS, V2_ONLY
from tests.support import ROOT

ROLE = ROOT / "roles" / "purelb_install"
AUDIT = ROOT / "roles" / "purelb_audit"
MIGRATE = ROOT / "roles" / "purelb_migrate"


def read(path: Path):
    return yaml.safe_load(path.read_text())


@pytest.mark.parametrize("role", [ROLE, AUDIT, MIGRATE], ids=lambda role: role.name)
def test_every_variable_of_a_role_is_documented_with_its_default(role: Path):
    defaults = read(role / "defaults" / "main.yml")
    entries = read(role / "meta" / "argument_specs.yml")["argument_specs"].values()
    options = {name: option for entry in entries for name, option in entry["options"].items()}
    # What is required has no default that is documented.
    assert {name: option.get("default", "") for name, option in options.items()} == defaults


# Macros of the template, which escape what they are given, and files of the role.
MARKUP = ("bar(", "state(", "lines(", "heading(", "lookup('ansible.builtin.file', ")


def test_the_audit_page_escapes_every_value():
    template = (AUDIT / "templates" / "page.html.j2").read_text()
    printed = re.findall(r"\{\{ (.*?) \}\}", template)
    assert len(printed) == template.count("{{")
    assert [p for p in printed if not (p.startswith(MARKUP) or p.endswith("| e"))] == []
    assert "safe" not in template


@pytest.mark.parametrize(("name", "file"), [("style", "page.css"), ("script", "page.js")])
def test_the_audit_page_allows_only_its_own_style_and_script(name: str, file: str):
    # As the lookup inserts it, without the last line's end.
    content = (AUDIT / "files" / file).read_text().rstrip().encode()
    expected = base64.b64encode(hashlib.sha256(content).digest()).decode()
    assert read(AUDIT / "vars" / "main.yml")[f"purelb_audit_{name}_sum"] == expected


def test_the_role_installs_the_version_of_the_collection():
    version = collection_version()
    assert read(ROLE / "vars" / "main.yml")["purelb_install_version"] == version
    assert version == permissions.VERSION
    assert read(ROLE / "defaults" / "main.yml")["purelb_install_image"].endswith(f":{version}")


def collection_version() -> str:
    """Returns the version from galaxy.yml, or from MANIFEST.json of a built collection."""
    if (ROOT / "galaxy.yml").exists():
        return str(read(ROOT / "galaxy.yml")["version"])
    return str(read(ROOT / "MANIFEST.json")["collection_info"]["version"])


def test_every_module_with_a_connection_is_in_the_action_group():
    files = (ROOT / "plugins" / "modules").glob("*.py")
    modules = {path.stem for path in files if "purelb.purelb.connection" in path.read_text()}
    assert set(read(ROOT / "meta" / "runtime.yml")["action_groups"]["purelb"]) == modules


@pytest.mark.parametrize("name", ["servicegroups", "lbnodeagents"])
def test_every_field_of_a_definition_has_a_description(name: str):
    for version in read(ROLE / "files" / "crds" / f"{name}.purelb.io.yaml")["spec"]["versions"]:
        root = version["schema"]["openAPIV3Schema"]
        # The API server allows no description here.
        root["properties"]["metadata"]["description"] = "as everywhere"
        assert list(undescribed(root, "")) == []


def undescribed(schema: dict[str, Any], path: str):
    if not schema.get("description"):
        yield path
    for name, field in schema.get("properties", {}).items():
        yield from undescribed(field, f"{path}.{name}")
    for part in ("items", "additionalProperties"):
        if part in schema:
            yield from undescribed(schema[part], f"{path}.{part}")


def test_valid_settings_return_an_empty_string():
    assert setting_problem({"PURELB_LEASE_DURATION": "20s", "PURELB_EVICTION_LIMIT": 3}) == ""


def test_invalid_limit_of_evictions_is_a_problem():
    assert "PURELB_EVICTION_LIMIT='0'" in setting_problem({"PURELB_EVICTION_LIMIT": 0})


def test_invalid_timings_return_the_violated_rule():
    times = {"PURELB_LEASE_DURATION": "10s", "PURELB_RENEW_DEADLINE": "10s"}
    problem = setting_problem(times)
    assert "PURELB_RENEW_DEADLINE must be shorter than PURELB_LEASE_DURATION" in problem


def versions(name: str) -> dict[str, dict[str, Any]]:
    found = read(ROLE / "files" / "crds" / f"{name}.purelb.io.yaml")["spec"]["versions"]
    return {each["name"]: each["schema"]["openAPIV3Schema"]["properties"]["spec"] for each in found}


KINDS = pytest.mark.parametrize(
    ("kind", "name"), [("ServiceGroup", "servicegroups"), ("LBNodeAgent", "lbnodeagents")]
)
# By the name in v2.
RENAMED = {
    "LBNodeAgent": {"local.localInterface", "local.dummyInterface", "local.garpConfig.enabled"},
    "ServiceGroup": set(),
}


def only_in(new: dict[str, Any], old: dict[str, Any], path: str = ""):
    """Returns the paths of the fields that v2 has and v1 lacks."""
    for field, schema in new.get("properties", {}).items():
        inner = old.get("properties", {}).get(field, {})
        if "properties" in schema:
            yield from only_in(schema, inner, f"{path}{field}.")
        elif not inner:
            yield f"{path}{field}"


def leaves(shape: Any, path: str = ""):
    for field, inner in shape.items():
        if isinstance(inner, dict) and "*" not in inner:
            yield from leaves(inner, f"{path}{field}.")
        else:
            yield f"{path}{field}"


@KINDS
def test_the_conversion_knows_every_field_that_v1_lacks(kind: str, name: str):
    both = versions(name)
    old = both["v1"]["properties"]
    # What is remote in v2 is local in v1.
    old = {"properties": {**old, "remote": old["local"]}}
    assert set(only_in(both["v2"], old)) == set(leaves(V2_ONLY[kind])) | RENAMED[kind]


def defaults_of(schema: dict[str, Any]):
    for field, inner in schema.get("properties", {}).items():
        # Those of lifetimes differ by interface, and are the same in both versions.
        if field != "addressConfig":
            if "default" in inner and inner["default"] != {}:
                yield field, inner["default"]
            yield from defaults_of(inner)


def test_the_conversion_knows_the_defaults_of_the_api_server():
    filled = {
        field: value
        for name in ("servicegroups", "lbnodeagents")
        for field, value in defaults_of(versions(name)["v2"])
    }
    assert filled == DEFAULTS


@KINDS
def test_v1_is_deprecated_and_neither_stored_nor_served_without_a_webhook(kind: str, name: str):
    spec = read(ROLE / "files" / "crds" / f"{name}.purelb.io.yaml")["spec"]
    new, old = spec["versions"]
    assert (new["name"], new["served"], new["storage"]) == ("v2", True, True)
    assert (old["name"], old["served"], old["storage"]) == ("v1", False, False)
    assert kind in old["deprecationWarning"]
    assert spec["conversion"] == {"strategy": "None"}

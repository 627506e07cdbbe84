# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What the collection says twice, it says alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.purelb.purelb.plugins.filter.lease_timing_problem import (
    lease_timing_problem,
)

ROOT = Path(__file__).parents[3]
ROLE = ROOT / "roles" / "purelb_install"


def read(path: Path):
    return yaml.safe_load(path.read_text())


def test_every_variable_of_the_role_is_documented_with_its_default():
    defaults = read(ROLE / "defaults" / "main.yml")
    options = read(ROLE / "meta" / "argument_specs.yml")["argument_specs"]["main"]["options"]
    assert {name: option["default"] for name, option in options.items()} == defaults


def test_the_role_installs_the_version_of_the_collection():
    version = collection_version()
    assert read(ROLE / "vars" / "main.yml")["purelb_install_version"] == version
    assert read(ROLE / "defaults" / "main.yml")["purelb_install_image"].endswith(f":{version}")


def collection_version() -> str:
    """From the sources, or from what is left of them in a built collection."""
    if (ROOT / "galaxy.yml").exists():
        return str(read(ROOT / "galaxy.yml")["version"])
    return str(read(ROOT / "MANIFEST.json")["collection_info"]["version"])


def test_every_module_takes_the_defaults_of_the_group():
    modules = {path.stem for path in (ROOT / "plugins" / "modules").glob("*.py")}
    assert set(read(ROOT / "meta" / "runtime.yml")["action_groups"]["purelb"]) == modules


@pytest.mark.parametrize("name", ["servicegroups", "lbnodeagents"])
def test_every_field_of_a_definition_is_described(name: str):
    version = read(ROLE / "files" / "crds" / f"{name}.purelb.io.yaml")["spec"]["versions"][0]
    root = version["schema"]["openAPIV3Schema"]
    # The API server takes no text for this one.
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


@pytest.mark.parametrize("path", sorted((ROLE / "templates").glob("*roles.yaml.j2")))
def test_no_permission_is_for_everything(path: Path):
    assert "*" not in path.read_text()


def test_good_timings_are_no_problem():
    assert lease_timing_problem({"PURELB_LEASE_DURATION": "20s"}) == ""


def test_a_broken_rule_is_named():
    problem = lease_timing_problem({"PURELB_RENEW_DEADLINE": "10s"})
    assert "PURELB_RENEW_DEADLINE must be shorter than PURELB_LEASE_DURATION" in problem

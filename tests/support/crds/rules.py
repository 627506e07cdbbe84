# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Reads every rule of the CustomResourceDefinitions: its fields and the API server's words.

The rules are read from the role's files, so a rule without a test is found. YAML aliases repeat a
rule: it counts as one rule with several places.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from tests.support import ROOT

Json = dict[str, Any]
FOLDER = ROOT / "roles/purelb_install/files/crds"
# The API server's words by keyword of the schema.
_WORDS = {
    "pattern": "should match '{}'",
    "enum": "Unsupported value",
    "minimum": "should be greater than or equal to {}",
    "maximum": "should be less than or equal to {}",
    "minLength": "should be at least {} chars long",
    "maxLength": "Too long: may not be more than {} bytes",
    "minItems": "should have at least {} items",
    "maxItems": "must have at most {} items",
    "maxProperties": "must have at most {} items",
}


@dataclass(frozen=True)
class Rule:
    """A rule and its fields, in which [*] stands for any element and {} for any key."""

    kind: str
    version: str
    places: frozenset[str]
    words: str

    def holds_at(self, field: str) -> bool:
        """Whether the rule applies to a field, in the API server's notation."""
        return any(_pattern(place).fullmatch(field) for place in self.places)

    def __str__(self) -> str:
        return f"{self.kind} {self.version}: {min(self.places)}: {self.words}"


@cache
def _pattern(place: str) -> re.Pattern[str]:
    escaped = re.escape(place)
    return re.compile(escaped.replace(r"\[\*\]", r"\[\d+\]").replace(r"\{\}", r"\..+"))


def definitions() -> list[Json]:
    """Return both CustomResourceDefinitions."""
    return [yaml.safe_load(path.read_text()) for path in sorted(FOLDER.glob("*.yaml"))]


def schemas() -> Iterator[tuple[str, str, Json]]:
    """Yield kind, version and schema of every served version."""
    for definition in definitions():
        for version in definition["spec"]["versions"]:
            if version["served"]:
                kind = definition["spec"]["names"]["kind"]
                yield kind, version["name"], version["schema"]["openAPIV3Schema"]


def nodes(schema: Json, path: str = "") -> Iterator[tuple[str, Json]]:
    """Yield every part of a schema with its path."""
    yield path, schema
    for name, part in schema.get("properties", {}).items():
        yield from nodes(part, f"{path}.{name}".lstrip("."))
    if "items" in schema:
        yield from nodes(schema["items"], f"{path}[*]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from nodes(schema["additionalProperties"], f"{path}{{}}")


@cache
def rules() -> tuple[Rule, ...]:
    """Return every rule of every served version."""
    found: dict[tuple[str, str, tuple[int, str], str], set[str]] = {}
    for kind, version, schema in schemas():
        for path, part in nodes(schema):
            for identity, place, words in _rules_of(part, path):
                found.setdefault((kind, version, identity, words), set()).add(place)
    return tuple(
        Rule(k, v, frozenset(places), words) for (k, v, _id, words), places in found.items()
    )


def _rules_of(part: Json, path: str) -> Iterator[tuple[tuple[int, str], str, str]]:
    """Yield (identity, path, words) of each rule of a part; aliases have the same identity."""
    identity = id(part)
    for name, words in _WORDS.items():
        if name in part:
            yield (identity, name), path, words.format(part[name])
    for name in part.get("required", ()):
        yield (identity, name), f"{path}.{name}".lstrip("."), "Required value"
    if part.get("x-kubernetes-list-type") in ("set", "map"):
        yield (identity, "unique"), f"{path}[*]", "Duplicate value"
    for rule in part.get("x-kubernetes-validations", ()):
        yield (id(rule), ""), path + rule.get("fieldPath", ""), rule["message"]

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The CustomResourceDefinitions: every rule has a case, every field a description."""

from __future__ import annotations

import re

import pytest

from tests.support.crds.cases import cases
from tests.support.crds.rules import definitions, nodes, rules, schemas

CASES = [case for case in cases() if case.words]


def is_about(case, rule):
    same = (case.kind, case.version) == (rule.kind, rule.version)
    return same and rule.holds_at(case.field) and case.words in rule.words


@pytest.mark.parametrize("rule", rules(), ids=str)
def test_every_rule_has_a_case(rule):
    assert any(is_about(case, rule) for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_case_belongs_to_a_rule(case):
    assert any(is_about(case, rule) for rule in rules())


def test_rules_of_ipv4_and_ipv6_pools_are_the_same():
    """Both families have the same fields, with the same number of rules each."""

    def numbered(family):
        places = (place for rule in rules() for place in rule.places if f"v{family}pool" in place)
        return sorted(place.replace(f"v{family}pool", "pool") for place in places)

    assert numbered(4) == numbered(6)


@pytest.mark.parametrize(
    ("kind", "version", "schema"), list(schemas()), ids=[f"{k} {v}" for k, v, _schema in schemas()]
)
def test_every_field_has_a_description(kind, version, schema):
    # The API server adds the description of metadata.
    missing = [
        place
        for place, part in nodes(schema)
        if place != "metadata" and not part.get("description", "").strip()
    ]
    assert missing == []


def columns():
    return [
        (version, column)
        for definition in definitions()
        for version in definition["spec"]["versions"]
        for column in version.get("additionalPrinterColumns", ())
    ]


@pytest.mark.parametrize(
    ("version", "column"),
    columns(),
    ids=[f"{v['name']} {c['name']} {c['jsonPath']}" for v, c in columns()],
)
def test_column_has_the_type_of_its_field_and_a_description(version, column):
    fields = dict(nodes(version["schema"]["openAPIV3Schema"]))
    # Of the condition of a type.
    place = re.sub(r"\[\?.*?\]", "[*]", column["jsonPath"].removeprefix("."))
    assert column["description"].strip()
    if not place.startswith("metadata."):
        plain = {"integer", "boolean", "string"}
        kind = fields[place]["type"]
        assert column["type"] == (kind if kind in plain else "string")
    assert re.fullmatch(r"[A-Z][A-Za-z0-9-]*", column["name"])

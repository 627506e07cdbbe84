# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Objects that the API server must accept or refuse, with the field and words of the refusal.

`cases.yml` has whole objects. This module adds the limits: valid objects with one changed value.
"""

from __future__ import annotations

import re
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

Json = dict[str, Any]
TABLE = Path(__file__).with_name("cases.yml")
# As a value: remove the field.
ABSENT = object()

V4 = {"pool": "10.0.0.0/28", "subnet": "10.0.0.0/24"}
V6 = {"pool": "fd00:1::/124", "subnet": "fd00:1::/64"}
CONDITION = {
    "type": "Ready",
    "status": "True",
    "observedGeneration": 1,
    "lastTransitionTime": "2026-01-01T00:00:00Z",
    "reason": "Because",
    "message": "It is so.",
}
# Valid objects by prefix of the changed field; the first match counts.
BASES: dict[str, dict[str, Json]] = {
    "ServiceGroup": {
        "spec.netbox": {"spec": {"netbox": {"url": "https://n.example", "tenant": "a"}}},
        "spec.external": {"spec": {"external": {"provider": "a", "announce": "local"}}},
        "spec.local.v4pools": {"spec": {"local": {"v4pools": [V4]}}},
        "spec.local.v6pools": {"spec": {"local": {"v6pools": [V6]}}},
        "spec.remote.v4pools": {"spec": {"remote": {"v4pools": [V4]}}},
        "spec.remote.v6pools": {"spec": {"remote": {"v6pools": [V6]}}},
        "spec.remote": {"spec": {"remote": {"v4pool": V4, "v6pool": V6}}},
        "spec": {"spec": {"local": {"v4pool": V4, "v6pool": V6}, "namespaces": ["a"]}},
        "status": {"spec": {"local": {"v4pool": V4}}, "status": {"conditions": [CONDITION]}},
    },
    "LBNodeAgent": {
        "spec.nodeSelector": {
            "spec": {
                "nodeSelector": {
                    "matchLabels": {"a": "b"},
                    "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}],
                }
            }
        },
        "spec": {
            "spec": {
                "local": {
                    "garpConfig": {},
                    "interfaces": ["eth0"],
                    "addressConfig": {"localInterface": {}, "dummyInterface": {}},
                }
            }
        },
        "status": {"spec": {}, "status": {"conditions": [CONDITION]}},
    },
}


@dataclass(frozen=True)
class Case:
    """An object, and field and words of its refusal; both empty if it must be accepted."""

    name: str
    kind: str
    version: str
    body: Json
    field: str = ""
    words: str = ""


def read_table() -> list[Case]:
    """Return the cases of the table, except refusals without a field, which only apply causes."""
    rows = yaml.safe_load(TABLE.read_text())["cases"]
    return [
        Case(
            row["name"],
            row.get("kind", "ServiceGroup"),
            row.get("version", "v2"),
            {"spec": row["spec"]},
            row.get("field", ""),
            row.get("refused", ""),
        )
        for row in rows
        if "field" in row or "refused" not in row
    ]


def limit(kind: str, place: str, value: object, words: str, *, field: str = "") -> Case:
    """Return the case of one invalid value; `field` is the refused field if it is another one."""
    bases = BASES[kind]
    body = deepcopy(next(base for start, base in bases.items() if place.startswith(start)))
    _put(body, place, value)
    shown = "absent" if value is ABSENT else str(value)[:20]
    return Case(f"{place} {shown}", kind, "v2", body, field or place, words)


def _put(body: Any, place: str, value: object) -> None:
    *way, last = [int(k) if k.isdigit() else k for k in re.findall(r"[^.\[\]]+", place)]
    for key in way:
        body = body[key]
    if value is ABSENT:
        del body[last]
    elif isinstance(body, list) and last == len(body):
        body.append(value)
    else:
        body[last] = value


def _texts(kind: str, place: str, longest: int, *, shortest: int = 1) -> list[Case]:
    long = limit(kind, place, "x" * (longest + 1), f"may not be more than {longest} bytes")
    if not shortest:
        return [long]
    return [limit(kind, place, "", f"should be at least {shortest} chars long"), long]


def _numbers(kind: str, place: str, least: int, most: int | None = None) -> list[Case]:
    low = limit(kind, place, least - 1, f"should be greater than or equal to {least}")
    if most is None:
        return [low]
    return [low, limit(kind, place, most + 1, f"should be less than or equal to {most}")]


def _required(kind: str, *places: str) -> list[Case]:
    return [limit(kind, place, ABSENT, "Required value") for place in places]


def _conditions(kind: str) -> list[Case]:
    first = "status.conditions[0]"
    fields = ("type", "status", "lastTransitionTime", "reason", "message")
    return [
        *_required(kind, *(f"{first}.{name}" for name in fields)),
        limit(kind, "status.conditions[1]", CONDITION, "Duplicate value"),
        limit(kind, f"{first}.status", "Perhaps", "Unsupported value"),
        *_numbers(kind, f"{first}.observedGeneration", 0),
        *_texts(kind, f"{first}.type", 316, shortest=0),
        *_texts(kind, f"{first}.reason", 1024, shortest=0),
        *_texts(kind, f"{first}.message", 32768, shortest=0),
    ]


def _pools(where: str) -> list[Case]:
    group = "ServiceGroup"
    found = []
    for version, entry, longest in ((4, V4, (40, 18)), (6, V6, (100, 50))):
        single, many = f"{where}.v{version}pool", f"{where}.v{version}pools"
        for pool in (single, f"{many}[0]"):
            found += [
                *_required(group, f"{pool}.pool", f"{pool}.subnet"),
                *_texts(group, f"{pool}.pool", longest[0]),
                *_texts(group, f"{pool}.subnet", longest[1]),
                *_texts(group, f"{pool}.aggregation", 7, shortest=0),
                limit(group, f"{pool}.aggregation", "24", "should match"),
            ]
        found += [
            limit(group, many, [], "should have at least 1 items"),
            limit(group, many, [entry] * 65, "must have at most 64 items"),
        ]
    return found


def _service_groups() -> list[Case]:
    group = "ServiceGroup"
    return [
        *_required(group, "spec"),
        *_pools("spec.local"),
        *_pools("spec.remote"),
        *_required(group, "spec.netbox.url", "spec.netbox.tenant"),
        limit(group, "spec.netbox.url", "ftp://n.example", "should match"),
        *_texts(group, "spec.netbox.url", 2048, shortest=0),
        *_texts(group, "spec.netbox.tenant", 256),
        limit(group, "spec.netbox.aggregation", "/7", "should match"),
        *_texts(group, "spec.netbox.aggregation", 7, shortest=0),
        *_required(group, "spec.external.provider", "spec.external.announce"),
        *_texts(group, "spec.external.provider", 253),
        *_texts(group, "spec.external.socket", 107, shortest=0),
        limit(group, "spec.namespaces", ["a"] * 1025, "must have at most 1024 items"),
        limit(group, "spec.namespaces[1]", "a", "Duplicate value"),
        limit(group, "spec.namespaces[0]", "Team", "should match"),
        *_texts(group, "spec.namespaces[0]", 63, shortest=0),
        *(
            case
            for name in ("allocatedIPv4", "allocatedIPv6", "availableIPv4", "availableIPv6")
            for case in _numbers(group, f"status.{name}", 0)
        ),
        *_conditions(group),
    ]


def _node_agents() -> list[Case]:
    agent, selector = "LBNodeAgent", "spec.nodeSelector"
    one, local = f"{selector}.matchExpressions[0]", "spec.local"
    labels = {f"l{number}": "" for number in range(65)}
    garp, config = f"{local}.garpConfig", f"{local}.addressConfig"
    most = 2147483647
    return [
        *_required(agent, "spec", f"{one}.key", f"{one}.operator"),
        limit(agent, f"{selector}.matchLabels", labels, "must have at most 64 items"),
        *_texts(agent, f"{selector}.matchLabels.a", 63, shortest=0),
        limit(
            agent,
            f"{selector}.matchExpressions",
            [{"key": "a", "operator": "Exists"}] * 65,
            "must have at most 64 items",
        ),
        *_texts(agent, f"{one}.key", 317),
        limit(agent, f"{one}.operator", "Gt", "Unsupported value"),
        limit(agent, f"{one}.values", ["a"] * 65, "must have at most 64 items"),
        *_texts(agent, f"{one}.values[0]", 63, shortest=0),
        *_texts(agent, f"{local}.localInterface", 256),
        limit(agent, f"{local}.interfaces", ["a"] * 65, "must have at most 64 items"),
        limit(agent, f"{local}.interfaces[1]", "eth0", "Duplicate value"),
        limit(agent, f"{local}.interfaces[0]", "a b", "should match"),
        *_texts(agent, f"{local}.interfaces[0]", 15),
        limit(agent, f"{local}.dummyInterface", "a/b", "should match"),
        *_texts(agent, f"{local}.dummyInterface", 15),
        *_numbers(agent, f"{garp}.count", 1, 10),
        *_numbers(agent, f"{garp}.intervalMs", 100, 5000),
        *_numbers(agent, f"{garp}.delayMs", 0, 5000),
        limit(agent, f"{garp}.interval", "1m", "should match"),
        *_texts(agent, f"{garp}.interval", 16, shortest=0),
        limit(agent, f"{garp}.initialDelay", "200", "should match"),
        *_texts(agent, f"{garp}.initialDelay", 16, shortest=0),
        *(
            case
            for link in ("localInterface", "dummyInterface")
            for name in ("validLifetime", "preferredLifetime")
            for case in _numbers(agent, f"{config}.{link}.{name}", 0, most)
        ),
        *_numbers(agent, "status.activeLeases", 0),
        *_conditions(agent),
    ]


def cases() -> list[Case]:
    """Return all cases."""
    return [*read_table(), *_service_groups(), *_node_agents()]

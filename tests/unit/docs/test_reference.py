# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The reference tables of docs/operate.md have all that the code has, and nothing that it has not.

mypy holds the code to the lists of events, findings and conditions that are read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import get_args

import pytest
import yaml
from prometheus_client import CollectorRegistry
from prometheus_client.metrics import MetricWrapperBase

from purelb.core.allocation.group_status import ConditionReason, ConditionType
from purelb.core.allocation.refusals import RefusalReason
from purelb.core.audit.findings import FindingCode
from purelb.core.model import Reason
from purelb_agent.allocator.metrics import AllocatorMetrics, ConversionMetrics
from purelb_agent.kube.events import EventReason
from purelb_agent.node.metrics import NodeMetrics
from purelb_agent.runtime.metrics import LabelSets
from tests.support import ROOT
from tests.support.docs.pages import read

PAGE = read("docs/operate.md")
SOURCES = [
    path
    for folder in ("agent/purelb_agent", "plugins/module_utils/purelb/core")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "_pb2" not in path.name
]
ALERTS = ROOT / "roles/purelb_install/files/monitoring/alerts.yaml"
RULES = {rule["alert"]: rule for rule in yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]}
_CODE = re.compile(r"`([^`]+)`")


def rows(heading: str) -> list[list[str]]:
    """The cells of the last table below a heading, without the table's own head."""
    (section,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", PAGE, re.DOTALL | re.MULTILINE)
    table = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)[-1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def words(heading: str, column: int = 0) -> list[str]:
    """The code in a column of the table below a heading."""
    return [_CODE.findall(row[column])[0] for row in rows(heading)]


def literals(hint: object) -> set[str]:
    """All values of a Literal, and of Literals in a Union."""
    values: set[str] = set()
    for one in get_args(hint):
        values |= {one} if isinstance(one, str) else literals(one)
    return values


def metrics(*owners: object) -> Iterator[str]:
    """The metrics of the programs with their labels, as one asks for them."""
    for owner in owners:
        for value in vars(owner).values():
            metric = value._metric if isinstance(value, LabelSets) else value  # noqa: SLF001
            if type(value).__name__.endswith("Metrics"):
                yield from metrics(value)
            elif isinstance(metric, MetricWrapperBase):
                (family,) = metric.describe()
                total = "_total" if family.type == "counter" else ""
                labels = ",".join(metric._labelnames)  # noqa: SLF001
                yield family.name + total + (f"{{{labels}}}" if labels else "")


@pytest.mark.parametrize(
    ("heading", "column", "known"),
    [
        ("Events", 1, literals(EventReason)),
        ("Conditions", 0, literals(ConditionType)),
        ("Conditions", 2, literals(ConditionReason)),
        ("Refusals", 0, {reason.value for reason in RefusalReason}),
        ("Reasons", 0, {reason.value for reason in Reason}),
        (
            "Alerts",
            0,
            set(RULES),
        ),
    ],
    ids=["events", "conditions", "reasons-of-conditions", "refusals", "reasons", "alerts"],
)
def test_a_table_has_every_word_of_the_code_and_no_other(heading, column, known):
    assert set(words(heading, column)) == known


def test_the_tables_of_findings_have_each_once():
    found = words("Findings") + words("Findings of the nodes and the segment")
    assert sorted(found) == sorted(literals(FindingCode))


def test_the_tables_of_metrics_have_each_with_its_labels():
    registry, other = CollectorRegistry(), CollectorRegistry()
    assert sorted(words("Of each node agent")) == sorted(metrics(NodeMetrics(registry)))
    leader = [*metrics(AllocatorMetrics(other)), *metrics(ConversionMetrics(other))]
    leader.remove("purelb_k8s_client_config_loaded_bool")  # is among those of the agents
    assert sorted(words("Of each allocator")) == sorted(leader)


def test_alerts_have_the_severity_and_the_time_of_their_rule():
    told = [(_CODE.findall(row[0])[0], row[1], row[2]) for row in rows("Alerts")]
    known = [(name, r["labels"]["severity"], r.get("for", "0s")) for name, r in RULES.items()]
    assert sorted(told) == sorted(known)


@pytest.mark.parametrize("hint", [EventReason, FindingCode, ConditionReason, ConditionType])
def test_the_code_says_every_word_of_its_lists(hint):
    """mypy finds a word that is not in a list; this one, a word that is in the list alone."""
    said = "".join(path.read_text() for path in SOURCES)
    enums = {reason.value: f"Reason.{reason.name}.value" for reason in Reason}
    for word in literals(hint):
        assert said.count(f'"{word}"') > 1 or enums.get(word, "\0") in said, word


def test_what_the_page_says_of_the_log_is_written_there():
    (section,) = re.findall(r"^## Logs\n(.*)", PAGE, re.DOTALL | re.MULTILINE)
    told = re.findall(r"`([a-z]+[A-Z]\w+)`", section)
    told += re.findall(r"`(\w+)` in the (?:agent's )?log", PAGE)
    said = "".join(path.read_text() for path in SOURCES)
    assert len(told) > 20
    assert [word for word in told if f'"{word}"' not in said] == []


@pytest.mark.parametrize(
    "heading",
    [
        "Events",
        "Conditions",
        "Refusals",
        "Findings",
        "Findings of the nodes and the segment",
        "Alerts",
        "Reasons",
    ],
)
def test_every_row_says_what_it_means_and_what_to_do(heading):
    assert [row for row in rows(heading) if not all(row)] == []


@pytest.mark.parametrize("heading", ["Of each node agent", "Of each allocator"])
def test_a_metric_that_is_worth_a_look_has_something_to_do(heading):
    assert [row for row in rows(heading) if not row[1] or bool(row[2]) != bool(row[3])] == []

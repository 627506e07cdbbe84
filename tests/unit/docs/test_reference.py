# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The reference tables of docs/operate.md list exactly what the code has.

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
from purelb.core.settings import TimingChoice
from purelb_agent.allocator.metrics import AllocatorMetrics, ConversionMetrics
from purelb_agent.kube.events import EventReason
from purelb_agent.node.metrics import NodeMetrics
from purelb_agent.runtime.metrics import LabelSets, ReadCounter
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


def rows(heading: str, page: str = PAGE) -> list[list[str]]:
    """Return the cells of the last table below a heading of a page, without its header."""
    (section,) = re.findall(rf"^#+ {heading}\n(.*?)(?=^#|\Z)", page, re.DOTALL | re.MULTILINE)
    table = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)[-1].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def words(heading: str, column: int = 0) -> list[str]:
    """Return the code spans in a column of the table below a heading."""
    return [_CODE.findall(row[column])[0] for row in rows(heading)]


def literals(hint: object) -> set[str]:
    """Return all values of a Literal, or of the Literals in a Union."""
    values: set[str] = set()
    for value in get_args(hint):
        values |= {value} if isinstance(value, str) else literals(value)
    return values


def metrics(*owners: object) -> Iterator[str]:
    """Yield the metrics of the programs with their labels, as in a query."""
    for owner in owners:
        for value in vars(owner).values():
            metric = value._metric if isinstance(value, LabelSets) else value  # noqa: SLF001
            if type(value).__name__.endswith("Metrics"):
                yield from metrics(value)
            elif isinstance(metric, ReadCounter):
                yield from (f"{family.name}_total" for family in metric.describe())
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
def test_table_lists_exactly_the_words_of_the_code(heading, column, known):
    assert set(words(heading, column)) == known


def test_each_finding_is_in_one_table():
    found = words("Findings") + words("Findings of the nodes and the segment")
    assert sorted(found) == sorted(literals(FindingCode))


def test_each_metric_is_listed_with_its_labels():
    registry, other = CollectorRegistry(), CollectorRegistry()
    assert sorted(words("Of each node agent")) == sorted(metrics(NodeMetrics(registry)))
    leader = [*metrics(AllocatorMetrics(other)), *metrics(ConversionMetrics(other))]
    leader.remove("purelb_k8s_client_config_loaded_bool")  # is among those of the agents
    assert sorted(words("Of each allocator")) == sorted(leader)


def test_alerts_have_severity_and_duration_of_their_rule():
    told = [(_CODE.findall(row[0])[0], row[1], row[2]) for row in rows("Alerts")]
    known = [(name, r["labels"]["severity"], r.get("for", "0s")) for name, r in RULES.items()]
    assert sorted(told) == sorted(known)


@pytest.mark.parametrize("hint", [EventReason, FindingCode, ConditionReason, ConditionType])
def test_code_uses_every_word_of_its_lists(hint):
    """mypy finds words that are missing in a list; this test finds words that nothing uses."""
    said = "".join(path.read_text() for path in SOURCES)
    enums = {reason.value: f"Reason.{reason.name}.value" for reason in Reason}
    for word in literals(hint):
        assert said.count(f'"{word}"') > 1 or enums.get(word, "\0") in said, word


def test_log_events_of_the_page_exist_in_the_code():
    (section,) = re.findall(r"^## Logs\n(.*)", PAGE, re.DOTALL | re.MULTILINE)
    told = re.findall(r"`([a-z]+[A-Z]\w+)`", section)
    told += re.findall(r"`(\w+)` in the (?:agent's )?log", PAGE)
    said = "".join(path.read_text() for path in SOURCES)
    assert len(told) > 20
    assert [word for word in told if f'"{word}"' not in said] == []


def test_words_of_the_troubleshooting_page_exist_in_the_code():
    named = set(re.findall(r"`([a-z]+[A-Z]\w+)`", read("docs/troubleshoot.md")))
    said = "".join(path.read_text() for path in SOURCES)
    assert len(named) > 20
    assert [word for word in sorted(named) if f'"{word}"' not in said] == []


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
def test_every_row_has_meaning_and_remedy(heading):
    assert [row for row in rows(heading) if not all(row)] == []


@pytest.mark.parametrize("heading", ["Of each node agent", "Of each allocator"])
def test_metric_worth_checking_has_a_remedy(heading):
    assert [row for row in rows(heading) if not row[1] or bool(row[2]) != bool(row[3])] == []


@pytest.mark.parametrize("row", rows("Cost for the API server"), ids=lambda row: row[0])
def test_costs_are_those_of_the_timing(row):
    nodes, _lasts, renewals, _sent, events, _received = (cell.replace(",", "") for cell in row)
    timing = TimingChoice().timing(nodes=int(nodes), is_exact=True)
    assert row[1] == f"{timing.duration:g} s"
    assert float(renewals) == int(nodes) / timing.renew_period
    # Each agent hears of each renewal.
    assert float(events) == int(nodes) * float(renewals)

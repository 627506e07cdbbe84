# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Each alert fires at its condition and not before; promtool reads the installed file."""

from __future__ import annotations

import json
import re
import subprocess
from typing import NamedTuple

import pytest
import yaml
from prometheus_client import CollectorRegistry

from purelb_agent.allocator.metrics import AllocatorMetrics
from purelb_agent.node.metrics import NodeMetrics
from tests.support import ROOT

MONITORING = ROOT / "roles" / "purelb_install" / "files" / "monitoring"
ALERTS = MONITORING / "alerts.yaml"
RULES = yaml.safe_load(ALERTS.read_text())["groups"][0]["rules"]
DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text())
NODE = 'namespace="purelb-system",node="n1"'
OTHER = 'namespace="purelb-system",node="n2"'
V4, V6 = "172.28.1.220", "fd28::220"


class Case(NamedTuple):
    """Series with a value every 15 s, and the labels of the alerts that fire at a time."""

    alert: str
    series: dict[str, str]
    at: str
    by: str
    fires: tuple[str, ...] = ()


def healthy(where, values):
    return {f"purelb_election_lease_healthy{{{where}}}": values}


def assigned(ip, pool_type="local"):
    labels = f'service="default/web",ip="{ip}",pool="default",pool_type="{pool_type}"'
    return {f'purelb_allocator_assigned{{namespace="purelb-system",{labels}}}': "1x40"}


def announced(where, ip, values="1x40", services="default/web"):
    labels = f'{where},ip="{ip}",service="{services}"'
    return {f"purelb_lbnodeagent_announced{{{labels}}}": values}


def counter(name, values):
    return {f"purelb_{name}{{{NODE}}}": values}


def missing(values):
    return {f'purelb_election_permissions_missing{{{NODE},peer="n2"}}': values}


def deadline_used(count, quick):
    name = "purelb_election_lease_deadline_used_ratio"
    return {
        f"{name}_count{{{NODE}}}": count,
        f'{name}_bucket{{{NODE},le="0.9"}}': quick,
        f'{name}_bucket{{{NODE},le="1.0"}}': count,
    }


def pool(used, free, family="IPv4"):
    name = "purelb_address_pool_family_addresses"
    labels = f'namespace="purelb-system",pool="default",family="{family}"'
    return {f"{name}_in_use{{{labels}}}": f"{used}x60", f"{name}_free{{{labels}}}": f"{free}x60"}


def both(alert, series, at, by, fires):
    """Return the case for both address families."""
    return [
        pytest.param(
            Case(alert, series(ip), at, by, tuple(f.format(ip=ip) for f in fires)), id=family
        )
        for family, ip in (("v4", V4), ("v6", V6))
    ]


UNHEALTHY, NO_NODES = "PureLBLeaseUnhealthy", "PureLBNoLiveNodes"
FAILURES, NEAR = "PureLBLeaseRenewalFailures", "PureLBRenewalsNearDeadline"
OUTAGE, NOWHERE = "PureLBOutageHeld", "PureLBAddressNotAnnounced"
TWICE, CONFLICT = "PureLBAddressAnnouncedTwice", "PureLBAddressConflict"
WATCHDOG, FULL = "PureLBWatchdogRecoveries", "PureLBPoolNearlyFull"
RECOVERIES = "lbnodeagent_address_watchdog_recoveries_total"
FAILED = "election_lease_renewal_failures_total"
HOLDING, DENIED = "election_outage_holding", "PureLBPermissionDenied"
TWO = announced(NODE, V4) | announced(OTHER, V4)

CASES = {
    "unhealthy": Case(
        UNHEALTHY, healthy(NODE, "1 0x9") | healthy(OTHER, "1x9"), "1m", "node", ('{node="n1"}',)
    ),
    "unhealthy-for-a-moment": Case(UNHEALTHY, healthy(NODE, "1 0 1x9"), "1m", "node"),
    "no-nodes": Case(
        NO_NODES, healthy(NODE, "1 0x9") | healthy(OTHER, "0x9"), "1m", "severity", ("critical",)
    ),
    "no-agents": Case(NO_NODES, {"up": "1x9"}, "1m", "severity", ("critical",)),
    "one-node": Case(NO_NODES, healthy(NODE, "0x9") | healthy(OTHER, "1x9"), "1m", "severity"),
    "failing": Case(FAILURES, counter(FAILED, "0+6x30"), "6m", "node", ('{node="n1"}',)),
    "failed-once": Case(FAILURES, counter(FAILED, "0 1x30"), "6m", "node"),
    "near-the-deadline": Case(
        NEAR, deadline_used("0+3x30", "0+2x30"), "5m", "node", ('{node="n1"}',)
    ),
    "in-good-time": Case(NEAR, deadline_used("0+3x30", "0+3x30"), "5m", "node"),
    "outage": Case(OUTAGE, counter(HOLDING, "0 1x9"), "1m", "namespace", ("purelb-system",)),
    "denied": Case(DENIED, missing("1x9"), "1m", "peer", ("n2",)),
    "given-within-a-minute": Case(DENIED, missing("1x2 stale"), "2m", "peer"),
    "no-outage": Case(OUTAGE, counter(HOLDING, "0x9"), "1m", "namespace"),
    "remote-on-no-node": Case(NOWHERE, assigned(V4, "remote"), "3m", "ip"),
    "moving": Case(NOWHERE, assigned(V4) | announced(NODE, V4, "1x4 _x2 1x20"), "3m", "ip"),
    "remote-on-two-nodes": Case(TWICE, assigned(V4, "remote") | TWO, "3m", "ip"),
    "shared-on-one-node": Case(
        TWICE,
        assigned(V4) | announced(NODE, V4) | announced(NODE, V4, services="default/other"),
        "3m",
        "ip",
    ),
    "conflict": Case(
        CONFLICT,
        counter("lbnodeagent_address_conflicts_total", "0x4 1x9"),
        "2m",
        "node",
        ('{node="n1"}',),
    ),
    "no-conflict": Case(
        CONFLICT, counter("lbnodeagent_address_conflicts_total", "3x9"), "2m", "node"
    ),
    "taken-away": Case(WATCHDOG, counter(RECOVERIES, "0+1x60"), "8m", "node", ('{node="n1"}',)),
    "taken-away-once": Case(WATCHDOG, counter(RECOVERIES, "0 1x60"), "8m", "node"),
    "pool-nearly-full": Case(
        FULL, pool(9, 1) | pool(9, 2**64, "IPv6"), "7m", "family", ('{family="IPv4"}',)
    ),
    "v6-pool-nearly-full": Case(
        FULL, pool(1, 9) | pool(9, 1, "IPv6"), "7m", "family", ('{family="IPv6"}',)
    ),
    "pool-with-room": Case(FULL, pool(8, 2), "7m", "family"),
    "pool-without-addresses": Case(FULL, pool(0, 0), "7m", "family"),
}


def promtool(tmp_path, *arguments, **content):
    (tmp_path / "file.json").write_text(json.dumps(content))
    command = ["promtool", *arguments, str(tmp_path / "file.json")]
    return subprocess.run(command, text=True, capture_output=True, check=False)


def check(tmp_path, case):
    of = f'ALERTS{{alertname="{case.alert}",alertstate="firing"}}'
    expected = [f if f.startswith("{") else f'{{{case.by}="{f}"}}' for f in case.fires]
    done = promtool(
        tmp_path,
        "test",
        "rules",
        rule_files=[str(ALERTS)],
        evaluation_interval="15s",
        tests=[
            {
                "interval": "15s",
                "input_series": [{"series": s, "values": v} for s, v in case.series.items()],
                "promql_expr_test": [
                    {
                        "expr": f"sum by ({case.by}) ({of})",
                        "eval_time": case.at,
                        "exp_samples": [{"labels": labels, "value": 1} for labels in expected],
                    }
                ],
            }
        ],
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_alert_fires_only_for_its_condition(tmp_path, case):
    check(tmp_path, case)


@pytest.mark.parametrize("case", both(NOWHERE, assigned, "2m", "ip", ['{{ip="{ip}"}}']))
def test_address_on_no_node_fires(tmp_path, case):
    check(tmp_path, case)


@pytest.mark.parametrize(
    "case",
    both(NOWHERE, lambda ip: assigned(ip) | announced(NODE, ip), "2m", "ip", []),
)
def test_address_on_one_node_does_not_fire(tmp_path, case):
    check(tmp_path, case)


@pytest.mark.parametrize(
    "case",
    both(
        TWICE,
        lambda ip: assigned(ip) | announced(NODE, ip) | announced(OTHER, ip),
        "2m",
        "ip",
        ['{{ip="{ip}"}}'],
    ),
)
def test_address_on_two_nodes_fires(tmp_path, case):
    check(tmp_path, case)


def test_every_alert_has_a_firing_and_a_silent_case():
    tested = [(case.alert, bool(case.fires)) for case in CASES.values()]
    tested += [(NOWHERE, True), (TWICE, True)]
    assert {alert for alert, fires in tested if fires} == {rule["alert"] for rule in RULES}
    assert {alert for alert, fires in tested if not fires} == {rule["alert"] for rule in RULES}


def test_every_alert_has_severity_summary_and_description():
    for rule in RULES:
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert set(rule["annotations"]) == {"summary", "description"}


def dashboard_queries():
    return [target["expr"] for panel in DASHBOARD["panels"] for target in panel["targets"]]


def test_queries_of_the_dashboard_are_valid(tmp_path):
    queries = [q.replace("$__rate_interval", "5m") for q in dashboard_queries()]
    rules = [{"record": f"query{number}", "expr": query} for number, query in enumerate(queries)]
    done = promtool(tmp_path, "check", "rules", groups=[{"name": "all", "rules": rules}])
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(queries)} rules found" in done.stdout


def test_alerts_and_dashboard_use_only_existing_metrics():
    registry = CollectorRegistry()
    NodeMetrics(registry)
    allocator = CollectorRegistry()
    AllocatorMetrics(allocator)
    names = {
        metric.name + ("_total" if metric.type == "counter" else "")
        for metric in (*registry.collect(), *allocator.collect())
    }
    names |= {name + part for name in names for part in ("_bucket", "_count")}
    queries = [*dashboard_queries(), *(rule["expr"] for rule in RULES)]
    asked = {name for query in queries for name in re.findall(r"purelb_\w+", query)}
    assert asked - names == set()


def test_panels_do_not_overlap():
    taken = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
        assert at["x"] + at["w"] <= 24

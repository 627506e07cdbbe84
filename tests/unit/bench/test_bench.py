# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The benchmarks run and measure what they claim; no test depends on their figures."""

from __future__ import annotations

import json

import pytest

from bench import auditing, bed, crowd, failover, idle, planning
from bench.__main__ import PARTS, parser
from bench.figures import Figure, table
from labkit.probe.pinger import longest_gap
from purelb.core.api import codec, custom_resources
from purelb.core.election.claims import is_served

NODES = dict.fromkeys(["n1", "n2", "n3"])
SERVICES = max([*failover.SERVICES, *(size.services for size in idle.SIZES)])


@pytest.mark.parametrize("part", PARTS)
def test_each_part_runs_alone_at_least_three_times_by_default(part):
    options = parser().parse_args([part])
    assert (options.part, options.runs >= 3) == (part, True)


@pytest.mark.parametrize("text", ["3", "2x5", "3x", "x5", "3x-1", "1000x5"])
def test_invalid_size_is_refused_with_the_limits(text, capsys):
    with pytest.raises(SystemExit):
        parser().parse_args(["idle", "--size", text])
    assert "from 3x0 to 200x2000" in capsys.readouterr().err


def test_figure_has_median_extremes_and_baseline():
    figure = Figure("3 x 5", "wait", "ms", (9.0, 1.0, 2.0), baseline=(40.0,), aim=1.5)
    assert figure.row() == (
        "3 x 5", "wait", "ms", "2.00", "1.00", "9.00", "3", "40.0", "< 1.5", "MISSED", "",
    )  # fmt: skip
    assert json.loads(json.dumps(figure.to_json()))["median"] == 2.0
    assert len(table([figure, figure]).splitlines()) == 4


def test_small_cluster_is_decided_and_planned():
    figures = planning.measure([planning.Size(2, 2)], runs=2)
    assert {len(figure.values) for figure in figures} == {2}
    assert sum(1 for figure in figures if figure.baseline) == 6


def test_generated_lease_is_read_like_an_api_servers():
    lease = codec.lease_of(json.loads(planning.lease_line(7, written=3)))
    assert (lease.node, lease.version) == ("n0007", "3")
    assert lease.subnets == (planning.NET4, planning.NET6)


def test_pool_has_room_for_all_services_and_starts_at_the_first_node():
    group = custom_resources.service_group_of(bed.pool(NODES))
    assert all(addresses.size > SERVICES for addresses in group.ranges)
    firsts = [str(addresses.first) for addresses in group.ranges]
    assert set(bed.winners(firsts, NODES).values()) == {bed.FIRST_NODE}


def test_simulated_nodes_compete_for_all_addresses_and_run_no_agent():
    node, lease = crowd.node("crowd-000", 0), codec.lease_of(crowd.lease("crowd-000", "uid"))
    ranges = custom_resources.service_group_of(bed.pool(NODES)).ranges
    assert {addresses.subnet for addresses in ranges} <= set(lease.subnets)
    assert "kubernetes.io/os" not in node["metadata"]["labels"]


def test_values_of_a_run_are_summarised_by_their_median():
    figure = Figure("50 addresses", "silence", "s", (0.1, 0.1, 0.2, 2.0, 2.0, 2.1), runs=2)
    assert figure.by_run == (0.1, 2.0)


def test_cables_are_cut_at_evenly_spread_times_between_two_renewals():
    assert failover.phases(1) == [0.5]
    assert failover.phases(5) == pytest.approx([0.1, 0.3, 0.5, 0.7, 0.9])


def test_ping_interval_grows_with_the_number_of_addresses():
    assert failover.pace(2) < failover.pace(250) <= 0.05


@pytest.mark.parametrize(
    ("times", "gap"),
    [([], 10.0), ([11.0, 12.0], 8.0), ([9.0, 14.0, 21.0], 6.0), ([15.0, 15.5], 5.0)],
    ids=["never", "not any more", "before and after", "in the middle"],
)
def test_longest_gap_counts_from_the_start_to_the_end_of_the_window(times, gap):
    assert longest_gap(times, since=10.0, until=20.0) == gap


def audited(verb, stage, user="system:serviceaccount:purelb-system:lbnodeagent"):
    extra = {"authentication.kubernetes.io/node-name": ["n1"]}
    return json.dumps({"verb": verb, "stage": stage, "user": {"username": user, "extra": extra}})


def test_each_request_of_an_agent_counts_once():
    lines = [
        audited("update", "ResponseComplete"),
        audited("watch", "ResponseStarted"),
        audited("watch", "ResponseComplete"),
        audited("update", "ResponseComplete", user="system:serviceaccount:default:other"),
    ]
    assert idle.requests_by_node(lines) == {"n1": 2}


def test_traffic_of_a_process_is_that_of_its_connections():
    line = 'ESTAB 0 0 172.28.1.11:4{0} 10.96.0.1:443 users:(("python",pid={0},fd=2)) cubic {1}'
    lines = [
        line.format(71, "bytes_sent:300 bytes_acked:301 bytes_received:40 segs_out:3"),
        line.format(71, "bytes_received:2 segs_out:3"),
        line.format(7, "bytes_sent:9 bytes_acked:10 bytes_received:9 segs_out:3"),
        "SYN-SENT 0 1 172.28.1.11:47 10.96.0.1:443",
    ]
    assert [*idle.traffic("\n".join(lines), 71).values()] == [300, 42]
    assert [*idle.traffic("\n".join(lines), 1).values()] == [0, 0]


def test_services_of_the_audit_are_served_by_us_and_ignored_by_kube_proxy():
    body = auditing.service(7, "n0001")
    read = codec.service_of(body)
    group = custom_resources.service_group_of(auditing.group(auditing.Size(1, 8)))
    assert group.range_of(read.addresses[0])
    assert (is_served(read), [str(address) for address in read.addresses]) == (True, ["10.1.0.7"])
    assert read.announcing[4][0].node == "n0001"
    assert "service.kubernetes.io/service-proxy-name" in body["metadata"]["labels"]
    lease = codec.lease_of(auditing.lease("n0001"))
    assert any(read.addresses[0] in subnet for subnet in lease.subnets)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What is computed of two systems on the same nodes, and the picture of it."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import pytest

from bench import keepalived
from bench.compare import OURS, THEIRS, System, seconds_on_two, shares
from bench.picture import DARK, LIGHT, Line, draw

NODES = ["n1", "n2", "n3"]
A, B = "02:00:00:00:00:0a", "02:00:00:00:00:0b"


def test_time_on_two_nodes_is_that_of_rounds_with_two_answers():
    answers = [
        (0.01, A),
        (0.11, A),
        (0.12, B),
        (0.21, B),
        (0.31, A),
        (0.32, A),
        (0.95, A),
        (0.96, B),
    ]
    assert seconds_on_two(answers, every=0.1, since=0.0, until=0.9) == pytest.approx(0.1)
    assert seconds_on_two(answers, every=0.1, since=0.0, until=1.0) == pytest.approx(0.2)


def test_share_of_requests_that_failed_by_window():
    requests = [(-0.5, False), (0.0, True), (0.5, False), (1.0, True), (3.9, False)]
    assert shares(requests, length=1) == {-1: 0.0, 0: 50.0, 1: 100.0, 3: 0.0}
    assert shares(requests, length=0.5) == {-0.5: 0, 0: 100, 0.5: 0, 1: 100, 3.5: 0}


def test_requests_go_to_addresses_of_both_families():
    vips = ("172.29.32.1", "172.29.32.4", "172.29.32.7", "fd28::1:0:0:2:1", "fd28::1:0:0:2:4")
    assert System(OURS, vips).asked() == [*vips[:2], *vips[3:]]


def test_each_node_is_preferred_by_a_third_of_the_addresses():
    vips = keepalived.addresses(24)
    preferred = keepalived.preferred(vips, NODES)
    assert {node: [*preferred.values()].count(node) for node in NODES} == dict.fromkeys(NODES, 16)
    for vip in ("172.29.32.10", "fd28::1:0:0:2:a"):
        priorities = {}
        for node in NODES:
            text = keepalived.configuration([vip], node, NODES)
            assert f"{vip}/" in text
            assert "virtual_router_id 10\n" in text
            (priorities[node],) = (
                int(line.split()[1]) for line in text.splitlines() if "priority" in line
            )
        assert max(priorities, key=priorities.__getitem__) == preferred[vip]
        assert len({*priorities.values()}) == len(NODES)


@pytest.mark.parametrize("shade", [LIGHT, DARK], ids=["light", "dark"])
def test_picture_shows_both_lines(shade):
    points = [(-1, 100), (0, 0), (3, 66.7)]
    text = draw([Line(OURS, points), Line(THEIRS, points)], title="Requests & answers", shade=shade)
    root = ET.fromstring(text)  # noqa: S314 - made here
    shown = ["".join(text.itertext()) for text in root.iter() if text.tag.endswith("text")]
    assert {OURS, THEIRS, "0 s", "100%", "Requests & answers"} <= {*shown}
    drawn = [each.get("points") for each in root.iter() if each.tag.endswith("polyline")]
    assert drawn[0].split()[0] == "50.0,40.0"
    assert len(drawn) == 4

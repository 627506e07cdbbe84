# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest
from prometheus_client import CollectorRegistry, Gauge

from purelb_agent.runtime.metrics import LabelSets


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def announced(registry):
    return LabelSets(Gauge("announced", "For the test.", ("service", "ip"), registry=registry))


def series(registry):
    return {
        tuple(sample.labels.values()): sample.value
        for metric in registry.collect()
        for sample in metric.samples
    }


def test_an_owner_has_only_the_series_that_it_was_given_last(registry, announced):
    announced.only("a", ("web", "v4"), ("web", "v6"))
    announced.only("b", ("other", "v4"))
    announced.only("a", ("web,shop", "v4"), ("web", "v6"))
    expected = {("web,shop", "v4"): 1, ("web", "v6"): 1, ("other", "v4"): 1}
    assert series(registry) == expected


def test_series_go_with_their_owner(registry, announced):
    announced.only("a", ("web", "v4"))
    announced.of("b", "other", "v4").set(3)
    announced.of("b", "other", "v6").set(3)
    announced.drop("a")
    announced.drop("c")
    assert series(registry) == {("other", "v4"): 3, ("other", "v6"): 3}
    announced.retain({"a"})
    assert series(registry) == {}

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The findings about nodes that list no subnet: each names its cause."""

from __future__ import annotations

from dataclasses import replace

import pytest

from purelb.core.node.configuration import NodeConfig, Requirement
from tests.support.core.audited_cluster import AuditedCluster

RACK_A = NodeConfig(name="rack-a", selector=(Requirement("rack", "In", ("a",)),))
BROKEN = NodeConfig(name="all", problem="spec.local.localInterface: '(' is no expression")


def findings(*configs, nodes=("n3",)):
    cluster = AuditedCluster()
    cluster.evidence = replace(cluster.evidence, configs=configs)
    for node in nodes:
        cluster.leases[node] = replace(cluster.leases[node], subnets=())
    return [(f.code, f.object, f.message, f.remediation) for f in cluster.audit().findings]


@pytest.mark.parametrize(
    ("config", "message", "remedy"),
    [
        (RACK_A, "no LBNodeAgent selects n3", "create an LBNodeAgent without spec.nodeSelector"),
        (BROKEN, f"LBNodeAgent all is invalid: {BROKEN.problem}", "correct it"),
        (NodeConfig(name="all"), "no interface that LBNodeAgent all selects", "localInterface"),
        (None, "no interface with a default route", "the node's default route"),
        # As if there were none.
        (NodeConfig(name="all", has_local=False), "no interface with a default route", "route"),
    ],
)
def test_the_cause_is_named(config, message, remedy):
    ((code, about, text, advice),) = findings(*filter(None, [config]))
    assert (code, about) == ("leaseWithoutSubnets", "Lease purelb-node-n3")
    assert message in text
    assert remedy in advice


def test_nodes_with_subnets_are_in_order():
    assert findings(RACK_A, nodes=()) == []

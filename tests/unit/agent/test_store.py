# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

from purelb_agent.store import LeaseTable


def lease(version):
    return {
        "metadata": {"name": "purelb-node-n1", "resourceVersion": version},
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": 10},
    }


def table_with(version):
    changes = []
    table = LeaseTable(lambda: changes.append(1))
    table.put(lease(version))
    changes.clear()
    return table, changes


def test_a_deleted_lease_is_forgotten():
    table, changes = table_with("9")
    table.drop(lease("10"))
    assert not table.membership.sightings
    assert changes


def test_news_of_a_deletion_is_ignored_when_the_lease_is_known_to_be_there_again():
    table, changes = table_with("11")
    table.drop(lease("10"))
    assert "n1" in table.membership.sightings
    assert not changes

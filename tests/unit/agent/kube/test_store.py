# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import pytest

from purelb.core.election.claims import claimed
from purelb_agent.kube.lease_table import LeaseTable
from purelb_agent.kube.store import NodeStore

TABLES = ("services", "groups", "slices", "leases", "configs", "nodes")


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
    assert not table.membership.observed
    assert changes


def test_news_of_a_deletion_is_ignored_when_the_lease_is_known_to_be_there_again():
    table, changes = table_with("11")
    table.drop(lease("10"))
    assert "n1" in table.membership.observed
    assert not changes


class TestNodeStore:
    """Whose loop begins when everything is listed."""

    @pytest.mark.parametrize("last", TABLES)
    async def test_the_last_list_wakes_the_loop_even_if_it_is_empty(self, last):
        store = NodeStore("n1", classes=claimed(unclassed=True), drains=True)
        for name in (*(name for name in TABLES if name != last), last):
            await store.changed.wait(seconds=0)
            getattr(store, name).replace([], asked_at=0.0)
        assert store.listed
        assert await store.changed.wait(seconds=0)

    @pytest.mark.parametrize("name", ["slices", "nodes"])
    async def test_a_later_list_without_news_lets_the_loop_sleep(self, name):
        store = NodeStore("n1", classes=claimed(unclassed=True), drains=True)
        for table in TABLES:
            getattr(store, table).replace([], asked_at=0.0)
        await store.changed.wait(seconds=0)
        getattr(store, name).replace([], asked_at=1.0)
        assert not await store.changed.wait(seconds=0)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The table of Leases in virtual time: which Leases are live, and which changes are reported."""

from __future__ import annotations

import asyncio

import pytest

from purelb_agent.kube.lease_table import LeaseTable
from purelb_agent.runtime import clock
from tests.support.agent.kubernetes_objects import lease_object
from tests.support.core.snapshots import NET4

DURATION = 10.0
OTHER = {"metadata": {"name": "purelb-allocator", "resourceVersion": "5"}, "spec": {}}


@pytest.fixture
def changes():
    return []


@pytest.fixture
def table(changes):
    made = LeaseTable(lambda: changes.append(clock.now()))
    made.put(lease_object("n1", version="10"))
    changes.clear()
    return made


def live(table):
    return [member.node for member in table.membership.live(clock.now())]


class TestPut:
    def test_a_new_lease_is_reported(self, table, changes):
        table.put(lease_object("n2"))
        assert live(table) == ["n1", "n2"]
        assert len(changes) == 1

    async def test_a_renewal_is_not_reported(self, table, changes):
        await asyncio.sleep(5)
        table.put(lease_object("n1", version="11"))
        assert changes == []
        await asyncio.sleep(DURATION - 1)
        assert live(table) == ["n1"]

    def test_changed_subnets_are_reported(self, table, changes):
        table.put(lease_object("n1", version="11", subnets=(NET4,)))
        assert len(changes) == 1

    def test_an_address_that_another_host_has_is_reported(self, table, changes):
        table.put(lease_object("n1", version="11", duplicates=(NET4[5],)))
        assert len(changes) == 1

    async def test_the_renewal_of_an_expired_lease_is_reported(self, table, changes):
        await asyncio.sleep(2 * DURATION)
        assert live(table) == []
        table.put(lease_object("n1", version="11"))
        assert live(table) == ["n1"]
        assert len(changes) == 1

    async def test_an_older_version_is_ignored(self, table, changes):
        await asyncio.sleep(5)
        table.put(lease_object("n1", version="9", subnets=(NET4,)))
        assert changes == []
        await asyncio.sleep(DURATION)
        assert live(table) == []

    @pytest.mark.parametrize("method", ["put", "drop"])
    def test_a_lease_of_no_node_is_ignored(self, table, changes, method):
        getattr(table, method)(OTHER)
        assert live(table) == ["n1"]
        assert changes == []


class TestReplace:
    def test_a_list_without_a_lease_removes_it(self, table, changes):
        table.replace([lease_object("n2"), OTHER], asked_at=clock.now())
        assert live(table) == ["n2"]
        assert table.listed
        assert len(changes) == 1


class TestDrop:
    def test_a_deleted_lease_is_removed(self, table, changes):
        table.drop(lease_object("n1", version="11"))
        assert live(table) == []
        assert len(changes) == 1

    def test_an_earlier_deletion_of_a_lease_that_exists_again_is_ignored(self, table, changes):
        table.drop(lease_object("n1", version="9"))
        assert live(table) == ["n1"]
        assert changes == []

    def test_the_deletion_of_an_unknown_lease_is_ignored(self, table, changes):
        table.drop(lease_object("n7"))
        assert changes == []


class TestPromise:
    async def test_a_promised_lease_stays_valid_without_a_renewal(self, table):
        await asyncio.sleep(DURATION - 1)
        assert table.promise("n1", seconds=DURATION)
        await asyncio.sleep(DURATION - 1)
        assert live(table) == ["n1"]
        await asyncio.sleep(2)
        assert live(table) == []

    async def test_an_expired_lease_stays_expired(self, table):
        await asyncio.sleep(2 * DURATION)
        assert not table.promise("n1", seconds=DURATION)
        assert live(table) == []


class TestFreeze:
    async def test_no_lease_expires_while_frozen(self, table):
        table.freeze()
        await asyncio.sleep(100)
        assert live(table) == ["n1"]

    async def test_after_unfreezing_a_lease_that_would_have_expired_is_expired(
        self, table, changes
    ):
        table.freeze()
        await asyncio.sleep(100)
        table.unfreeze()
        assert live(table) == []
        assert len(changes) == 1

    def test_unfreezing_what_is_not_frozen_is_not_reported(self, table, changes):
        table.unfreeze()
        assert changes == []

    async def test_after_resuming_a_lease_has_a_full_duration(self, table, changes):
        table.freeze()
        await asyncio.sleep(100)
        table.resume_expiry()
        assert len(changes) == 1
        await asyncio.sleep(DURATION - 1)
        assert live(table) == ["n1"]

    async def test_after_rejoining_an_expired_lease_is_in_doubt_for_the_patience(
        self, table, changes
    ):
        began = clock.now()
        await asyncio.sleep(2 * DURATION)
        table.rejoin(since=began, patience=2.5)
        assert len(changes) == 1
        assert table.membership.settles_at(clock.now()) == clock.now() + 2.5

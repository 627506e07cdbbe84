# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The table of Leases in virtual time: which Leases count, and which changes are reported."""

from __future__ import annotations

import asyncio

import pytest

from purelb.core.holding.counted_lease import Check
from purelb_agent.kube.lease_table import LeaseTable
from purelb_agent.runtime import clock
from tests.support.agent.kubernetes_objects import lease_object
from tests.support.core.snapshots import NET4, VIP4, VIP6

DURATION = 10.0
OTHER = {"metadata": {"name": "purelb-allocator", "resourceVersion": "5"}, "spec": {}}


@pytest.fixture
def changes():
    return []


@pytest.fixture
async def table(changes):
    """The table of `me`, with a Lease of `n1`; who checks ends has seen it."""
    made = LeaseTable(lambda: changes.append(clock.now()), node="me")
    made.put(lease_object("n1", version="10", epoch="e.1"))
    await was_woken(made)
    changes.clear()
    return made


def live(table):
    return sorted(lease.node for lease in table.counting.counted())


async def was_woken(table):
    """Whether there is news for who checks the ends of Leases."""
    return await table.seen.wait(seconds=0)


async def end(table, node="n1"):
    """Let a Lease end, with everything found out about it."""
    await asyncio.sleep(DURATION)
    counting = table.counting
    for check in Check:
        counting = counting.found(node, check, asked_at=clock.now())
    table.change(counting)


class TestPut:
    async def test_what_a_lease_says_of_a_nodes_addresses_is_reported(self, table, changes):
        said = (("n1", VIP4), ("n1", VIP6))
        table.put(lease_object("n1", version="11", epoch="e.1", mistaken=said))
        assert table.mistaken() == {"n1": said}
        assert len(changes) == 1

    async def test_a_new_lease_is_reported(self, table, changes):
        table.put(lease_object("n2"))
        assert live(table) == ["n1", "n2"]
        assert len(changes) == 1
        assert await was_woken(table)

    async def test_a_renewal_is_not_reported(self, table, changes):
        await asyncio.sleep(5)
        table.put(lease_object("n1", version="11", epoch="e.1"))
        assert changes == []
        assert not await was_woken(table)
        assert table.counting.leases["n1"].until == clock.now() + DURATION

    @pytest.mark.parametrize(
        "changed",
        [
            {"subnets": (NET4,)},
            {"duplicates": (NET4[5],)},
            {"epoch": "e.2"},
            {"mail": "{}"},
            {"outside": "x"},
        ],
        ids=["subnets", "an address of another host", "epoch", "mail", "an address in no pool"],
    )
    async def test_what_concerns_others_is_reported(self, table, changes, changed):
        table.put(lease_object("n1", version="11", **{"epoch": "e.1", **changed}))
        assert len(changes) == 1

    async def test_the_renewal_of_an_ended_lease_is_reported(self, table, changes):
        await end(table)
        assert live(table) == []
        await was_woken(table)
        changes.clear()
        table.put(lease_object("n1", version="11", epoch="e.1"))
        assert live(table) == ["n1"]
        assert len(changes) == 1
        assert await was_woken(table)

    async def test_a_renewal_in_the_same_epoch_that_comes_late_is_reported(self, table, changes):
        """Who does not check ends takes the node for gone meanwhile."""
        await asyncio.sleep(DURATION)
        table.put(lease_object("n1", version="11", epoch="e.1"))
        assert len(changes) == 1

    async def test_a_lease_that_says_that_its_node_leaves_is_reported(self, table, changes):
        table.put(lease_object("n1", version="11", epoch="e.1", holder=""))
        assert live(table) == []
        assert len(changes) == 1

    @pytest.mark.parametrize("method", ["put", "drop"])
    async def test_a_lease_of_no_node_is_ignored(self, table, changes, method):
        getattr(table, method)(OTHER)
        assert live(table) == ["n1"]
        assert changes == []


class TestOwnLease:
    async def test_it_is_kept_apart(self, table, changes):
        table.put(lease_object("me", epoch="t.1"))
        assert table.own.epoch == "t.1"
        assert live(table) == ["n1"]
        assert len(changes) == 1

    async def test_only_another_epoch_of_it_is_reported(self, table, changes):
        table.put(lease_object("me", version="1", epoch="t.1"))
        table.put(lease_object("me", version="2", epoch="t.1", mail="{}"))
        assert table.own.version == "2"
        assert len(changes) == 1
        table.put(lease_object("me", version="3", epoch="t.2"))
        assert len(changes) == 2

    async def test_its_deletion_is_reported(self, table, changes):
        table.put(lease_object("me", epoch="t.1"))
        table.drop(lease_object("me", epoch="t.1"))
        assert table.own is None
        assert len(changes) == 2

    async def test_a_list_shows_it_or_that_it_is_gone(self, table):
        table.replace([lease_object("me", epoch="t.1")], asked_at=clock.now())
        assert table.own.epoch == "t.1"
        assert "me" not in table.counting.leases
        table.replace([], asked_at=clock.now())
        assert table.own is None


class TestReplace:
    async def test_a_list_adds_leases_and_is_reported(self, table, changes):
        assert not table.listed
        listed = [lease_object("n1", version="10", epoch="e.1"), lease_object("n2"), OTHER]
        table.replace(listed, asked_at=clock.now())
        assert live(table) == ["n1", "n2"]
        assert table.listed
        assert len(changes) == 1
        assert await was_woken(table)

    async def test_what_a_list_lacks_counts_to_its_end(self, table):
        table.replace([], asked_at=clock.now())
        assert live(table) == ["n1"]
        await end(table)
        assert table.counting.leases == {}


class TestDrop:
    async def test_a_lease_that_others_deleted_counts_to_its_end(self, table, changes):
        table.drop(lease_object("n1", version="11", epoch="e.1"))
        assert live(table) == ["n1"]
        assert changes == []
        await end(table)
        assert table.counting.leases == {}
        assert len(changes) == 1

    async def test_one_whose_last_state_says_that_its_node_leaves_ends_at_once(
        self, table, changes
    ):
        table.drop(lease_object("n1", version="11", epoch="e.1", holder=""))
        assert table.counting.leases == {}
        assert len(changes) == 1

    async def test_the_deletion_of_an_unknown_lease_is_ignored(self, table, changes):
        table.drop(lease_object("n7"))
        assert changes == []


class TestChange:
    async def test_the_end_of_a_lease_is_reported(self, table, changes):
        await end(table)
        assert live(table) == []
        assert len(changes) == 1

    async def test_what_leaves_all_counting_wakes_only_who_checks_ends(self, table, changes):
        table.change(table.counting.has_right("n1", seconds=60.0, now=clock.now()))
        assert await was_woken(table)
        assert changes == []

    async def test_without_news_no_task_wakes(self, table, changes):
        table.change(table.counting)
        assert not await was_woken(table)
        assert changes == []

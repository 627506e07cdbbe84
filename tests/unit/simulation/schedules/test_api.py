# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Named schedules: an API server that is restored, refuses, forgets changes, lags or stops."""

from __future__ import annotations

from collections import Counter
from functools import cache, partial

import pytest

from purelb.core.election.election import rank
from purelb.core.names import SERVICE_GROUP_ANNOTATION
from simulation import users
from simulation.api.way import Reach
from simulation.chance import stream
from simulation.manifests import KINDS
from tests.unit.simulation.schedules.story import (
    TAKEOVER,
    THREE,
    at_work,
    join,
    must,
    won_by,
)

# Lease writes of an agent in a second.
RENEWALS = 0.2
SERVICES_LISTED = ("GET", KINDS["services"])


def lease_writes(cluster):
    """How often each agent has written Leases."""
    return {n: cluster.api.writes[f"agent/{n}", KINDS["leases"]] for n in cluster.nodes}


def assert_in_order(cluster, names=THREE):
    given = cluster.addresses()
    held = {place[1] for node in cluster.nodes.values() for place in node.kernel.held}
    own = {address for node in cluster.nodes.values() for address in node.addresses}
    must(
        {a: cluster.holders(a) for a in given} == {a: [rank(names, a)[0]] for a in given},
        "an address is not on its winner alone",
    )
    must(held - own == set(given), "an address is held that no Service has")


@pytest.mark.parametrize("seed", range(1, 4))
def test_one_failed_renewal_of_each_node_moves_nothing(seed):
    with at_work(seed) as (cluster, history):
        failed = set()

        def fails_once(user, method, kind):
            is_first = (method, kind) == ("PUT", KINDS["leases"]) and user not in failed
            failed.update({user} if is_first else ())
            return 500 if is_first else 0

        for name in THREE:
            cluster.way(f"agent/{name}").refuses = partial(fails_once, name)
        cluster.run(30)
        assert failed == set(THREE)
        must(history.unheld() == 0, f"unheld for {history.unheld():.1f} s")


# A restore of etcd


def restored(cluster, seconds, between=lambda: None):
    """Put the store back as it was so long ago; the server is away for five seconds."""
    cluster.run_kubelets()
    backup = cluster.api.backup()
    between()
    cluster.run(seconds)
    before = cluster.api.objects.version
    for user in cluster.kubelets:
        cluster.way(user).set_reach(Reach.REFUSED)
    cluster.run(5)
    cluster.api.restore(backup)
    for user in cluster.kubelets:
        cluster.way(user).set_reach(Reach.WHOLE)
    assert cluster.api.objects.version < before - 50


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_restore_moves_nothing_and_leases_are_renewed(seed):
    with at_work(seed) as (cluster, history):
        restored(cluster, 60)
        cluster.run(10)
        before = lease_writes(cluster)
        cluster.run(60)
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
        must(history.unheld() == 0, f"unheld for {history.unheld():.1f} s")
        after = lease_writes(cluster)
        renewed = {name: after[name] - before[name] for name in after}
        must(all(11 <= n <= 24 for n in renewed.values()), f"renewals in a minute: {renewed}")


@pytest.mark.parametrize("seed", range(1, 7))
def test_a_node_that_lost_and_regained_its_right_since_the_backup_keeps_its_addresses(seed):
    def lose_right():
        won_by(cluster, "n1", THREE)
        cluster.way("agent/n1").set_reach(Reach.REFUSED)
        cluster.run(12)
        cluster.way("agent/n1").set_reach(Reach.WHOLE)

    with at_work(seed) as (cluster, history):
        restored(cluster, 30, lose_right)
        before = history.unheld()
        cluster.run(30)
        assert_in_order(cluster)
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
        must(history.unheld() == before, f"unheld for {history.unheld() - before:.1f} s more")


def test_a_lock_is_not_taken_from_its_holder_after_a_restore():
    for seed in range(1, 4):
        with at_work(seed) as (cluster, _history):
            restored(cluster, 60)
            cluster.run(70)
            ended = [str(p.error) for kubelet in cluster.kubelets.values() for p in kubelet.ended]
            # The leader knows a later version of its lock, so it cannot renew it.
            assert "notRenewed" in ended[0]
            must(not any("superseded" in error for error in ended), "the lock was held and taken")


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_node_that_was_lost_since_the_backup_does_not_count_again(seed):
    with at_work(seed) as (cluster, history):
        restored(cluster, 60, lambda: cluster.power_off(cluster.nodes["n3"]))
        assert cluster.find("leases", "purelb-system", "purelb-node-n3") is not None
        before = history.unheld()
        cluster.run(60)
        must(history.unheld() == before < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


@pytest.mark.parametrize(
    "seed",
    [
        1,
        2,
        3,
    ],
)
def test_a_node_that_joined_since_the_backup_is_replaced_and_returns(seed):
    with at_work(seed) as (cluster, history):
        restored(cluster, 60, lambda: join(cluster, history, "n4"))
        # Node and Lease have never been.
        assert cluster.find("nodes", "", "n4") is None
        won_by(cluster, "n4", (*THREE, "n4"))
        cluster.run(60)
        assert_in_order(cluster)
        cluster.register(cluster.nodes["n4"])
        cluster.run(30)
        assert_in_order(cluster, (*THREE, "n4"))
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")


def test_a_restore_during_which_no_request_was_refused_is_noticed():
    with at_work() as (cluster, _history):
        backup = cluster.api.backup()
        users.configure(cluster, "elsewhere", local={}, labels={"rack": "none"})
        cluster.run(20)
        assert not any(map(cluster.holders, cluster.addresses()))
        cluster.api.restore(backup)
        cluster.run(5)
        must(all(map(cluster.holders, cluster.addresses())), "addresses are unheld")


def test_a_service_that_is_made_after_a_restore_is_held():
    with at_work() as (cluster, _history):
        known = set(cluster.addresses())
        restored(cluster, 60)
        cluster.run(30)
        cluster.add_service("new")
        cluster.run(TAKEOVER)
        assert len(set(cluster.addresses()) - known) == 2
        unheld = [a for a in cluster.addresses() if not cluster.holders(a)]
        must(not unheld, f"{len(unheld)} addresses are unheld after {TAKEOVER:.0f} s")


def test_a_service_that_a_restore_brings_back_is_held():
    with at_work() as (cluster, _history):
        restored(cluster, 60, lambda: cluster.drop("services", "default", "s0"))
        assert cluster.find("services", "default", "s0") is not None
        cluster.run(300)
        unheld = [a for a in cluster.addresses() if not cluster.holders(a)]
        must(not unheld, f"{len(unheld)} addresses are unheld")


def test_a_service_that_a_restore_takes_away_is_given_up():
    with at_work() as (cluster, _history):
        restored(cluster, 60, lambda: cluster.add_service("lost"))
        assert cluster.find("services", "default", "lost") is None
        cluster.run(300)
        assert_in_order(cluster)


# A server that refuses


def refuse(cluster, users, status, share=1.0, methods=("GET", "POST", "PUT", "PATCH", "DELETE")):
    """Refuse a share of requests; returns who was refused how often."""
    draw, refused = stream(cluster.seed, "refusals"), Counter()
    for user in users:

        def refuses(method, _kind, user=user):
            if method not in methods or draw.random() >= share:
                return 0
            refused[user] += 1
            return status

        cluster.way(user).refuses = refuses
    return refused


def accept(cluster):
    for user in cluster.kubelets:
        cluster.way(user).refuses = lambda _method, _kind: 0


@cache
def half_refused(seed):
    """Half of all writes are refused for a minute; return `twice`, `unheld` and Lease writes."""
    with at_work(seed) as (cluster, history):
        cluster.run_kubelets()
        before = lease_writes(cluster)
        refused = refuse(cluster, cluster.kubelets, 500, 0.5, ("POST", "PUT", "PATCH", "DELETE"))
        cluster.run(60)
        after = lease_writes(cluster)
        assert all(refused[f"agent/{name}"] >= 5 for name in THREE)
        accept(cluster)
        cluster.run(60)
        return history.twice(), history.unheld(), sum(after.values()) - sum(before.values())


@pytest.mark.parametrize("seed", [1, 5, 9])
def test_half_of_all_writes_refused_for_a_minute_cost_a_takeover_at_most(seed):
    twice, unheld, _writes = half_refused(seed)
    must(twice == 0, f"on two nodes for {twice:.1f} s")
    must(unheld < TAKEOVER, f"unheld for {unheld:.1f} s")


def test_half_of_all_writes_refused_do_not_make_many_more():
    worst = max(half_refused(seed)[2] for seed in (1, 5))
    must(worst <= 2 * 3 * 60 * RENEWALS, f"{worst} Leases written in a minute")


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_node_whose_token_has_expired_is_replaced_and_returns(seed):
    with at_work(seed) as (cluster, history):
        won_by(cluster, "n1", THREE)
        refused = refuse(cluster, ["agent/n1"], 401)
        cluster.run(30)
        assert refused["agent/n1"] > 10
        must(not any("n1" in cluster.holders(a) for a in cluster.addresses()), "n1 still holds")
        accept(cluster)
        cluster.run(30)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")
        assert_in_order(cluster)


def test_a_node_whose_lease_cannot_be_written_does_not_dispute_what_nodes_announce():
    """It has the addresses of a remote pool, and for the others it is dead."""
    with at_work() as (cluster, _history):
        users.put_remote_group(cluster, "for-all", v4="10.99.0.0/24", v6="fd99::/120")
        in_group = {SERVICE_GROUP_ANNOTATION: "for-all"}
        users.add_service(cluster, "s99", families=("IPv4", "IPv6"), annotations=in_group)
        cluster.run(20)
        refuse(cluster, ["agent/n1"], 500, methods=("POST", "PUT"))
        before = {name: cluster.way(f"agent/{name}").asked for name in THREE}
        cluster.run(60)
        asked = {name: cluster.way(f"agent/{name}").asked - before[name] for name in THREE}
        must(max(asked.values()) < 180, f"requests in a minute: {asked}")
        written = cluster.find("services", "default", "s99")["metadata"]["annotations"]
        for family in ("IPv4", "IPv6"):
            entries = written[f"purelb.io/announcing-{family}"].split()
            assert [entry.partition(",")[0] for entry in entries] == ["n2", "n3"]
        accept(cluster)
        cluster.run(20)
        written = cluster.find("services", "default", "s99")["metadata"]["annotations"]
        assert len(written["purelb.io/announcing-IPv6"].split()) == 3


@pytest.mark.parametrize("status", [429, 503])
def test_a_server_that_refuses_everybody_moves_nothing(status):
    with at_work() as (cluster, history):
        cluster.run_kubelets()
        refused = refuse(cluster, cluster.kubelets, status)
        cluster.run(20)
        assert set(refused) == set(cluster.kubelets)
        accept(cluster)
        before = lease_writes(cluster)
        cluster.run(60)
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
        must(history.unheld() == 0, f"unheld for {history.unheld():.1f} s")
        after = lease_writes(cluster)
        writes = sum(after.values()) - sum(before.values())
        must(writes <= 2 * 3 * 60 * RENEWALS, f"{writes} Leases written in a minute")


# Lists and watches


def listed(cluster, name, seconds=0.0):
    """Return what this agent lists from now on; a page of Services takes so long."""
    requests = []

    def slow(method, kind):
        requests.append((method, kind))
        return 0.0, seconds if (method, kind) == SERVICES_LISTED else 0.0

    cluster.way(f"agent/{name}").slow = slow
    return requests


@pytest.mark.parametrize(("is_compacted", "pages"), [(False, 2), (True, 4)])
def test_a_list_in_pages_loses_nothing_that_changes_meanwhile(is_compacted, pages):
    with at_work() as (cluster, history):
        other = {"type": "LoadBalancer", "loadBalancerClass": "example.com/other"}
        for number in range(600):
            cluster.put("services", "default", f"a{number:03}", {"spec": other})
        requests = listed(cluster, "n1", 1.0)
        cluster.restart_container(cluster.nodes["n1"])
        cluster.run(0.5)
        assert requests.count(SERVICES_LISTED) == 1
        cluster.drop("services", "default", "s0")
        cluster.add_service("late")
        if is_compacted:
            cluster.api.compact()
        cluster.run(20)
        assert requests.count(SERVICES_LISTED) == pages
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")
        assert_in_order(cluster)


@pytest.mark.parametrize("reach", [Reach.REFUSED, Reach.DROPPED])
def test_a_node_that_was_cut_off_for_longer_than_changes_are_known_lists_again(reach):
    with at_work() as (cluster, history):
        way = cluster.way("agent/n1")
        way.set_reach(reach)
        cluster.run(5)
        cluster.drop("services", "default", "s0")
        cluster.add_service("late")
        cluster.run(20)
        cluster.api.compact()
        requests = listed(cluster, "n1")
        way.set_reach(Reach.WHOLE)
        cluster.run(20)
        assert requests.count(SERVICES_LISTED) == 1
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")
        assert_in_order(cluster)


# Several servers


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_node_that_joins_waits_for_a_holder_whose_server_lags(seed):
    with at_work(seed) as (cluster, history):
        cluster.way("agent/n1").event = lambda: 3.0
        cluster.run(20)
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")
        join(cluster, history, "n4")
        cluster.run(40)
        won_by(cluster, "n4", (*THREE, "n4"))
        must(history.twice() == 0, f"on two nodes for {history.twice():.1f} s")


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_node_whose_server_is_stopped_is_replaced_and_returns(seed):
    with at_work(seed) as (cluster, history):
        way = cluster.way("agent/n1")
        way.set_reach(Reach.STOPPED)
        cluster.run(60)
        must(not any("n1" in cluster.holders(a) for a in cluster.addresses()), "n1 still holds")
        way.set_reach(Reach.WHOLE)
        cluster.run(30)
        must(history.unheld() < TAKEOVER, f"unheld for {history.unheld():.1f} s")
        must(history.twice() == 0, f"on two nodes for {history.twice():.2f} s")
        assert_in_order(cluster)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What users and operators do, and what must always be so: each does what it says."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from purelb.core.election.election import rank
from purelb.core.holding.peer_keys import PeerKeys
from purelb.core.names import DRAINING_TAINTS, PEER_KEYS_ANNOTATION
from purelb.core.settings import TimingChoice
from simulation import users
from simulation.history import History
from simulation.invariants import Leaks, given_twice, misled, ownerless
from simulation.member import KEYS
from tests.unit.simulation.schedules.story import THREE, at_work

FAST = TimingChoice(5.0, 3.5, 1.0)
OTHER = PeerKeys(b"another key of all the agents")
ASKED = ip_address("172.28.1.240")


@pytest.fixture
def cluster():
    with at_work(services=2) as (cluster, _history):
        yield cluster


def addresses_of(cluster, service):
    return [a for a, name in cluster.addresses().items() if name == service]


def lease(cluster, name):
    return cluster.find("leases", "purelb-system", f"purelb-node-{name}")


def won(cluster, name):
    return [a for a in cluster.addresses() if cluster.holders(a) == [name]]


class TestServices:
    def test_one_family(self, cluster):
        assert users.add_service(cluster, "web") == "the Service web is created, with IPv4"
        cluster.run(2)
        assert [a.version for a in addresses_of(cluster, "web")] == [4]

    def test_the_address_of_a_local_one_is_where_its_endpoints_are(self, cluster):
        for name in THREE:
            if name == "n1":
                users.add_local_service(cluster, "web", [name])
            else:
                users.move_endpoints(cluster, "web", [name], unready=["n1"])
            cluster.run(2)
            assert [cluster.holders(a) for a in addresses_of(cluster, "web")] == [[name]] * 2

    def test_an_address_is_asked_for(self, cluster):
        users.add_service(cluster, "web")
        users.ask_for(cluster, "web", ASKED)
        cluster.run(2)
        assert addresses_of(cluster, "web") == [ASKED]

    def test_of_another_type_and_back(self, cluster):
        users.change_type(cluster, "s0", "ClusterIP")
        cluster.run(2)
        assert addresses_of(cluster, "s0") == []
        users.change_type(cluster, "s0", "LoadBalancer")
        cluster.run(2)
        assert len(addresses_of(cluster, "s0")) == 2

    def test_what_is_not_there_cannot_be_changed(self, cluster):
        with pytest.raises(LookupError, match="no services web"):
            users.change_type(cluster, "web", "ClusterIP")


class TestGroups:
    def test_a_pool_that_moves_leaves_services_what_they_have(self, cluster):
        before = cluster.addresses()
        users.put_group(
            cluster, "default", v4="172.28.1.100-172.28.1.120", v6="fd28::100-fd28::1ff"
        )
        # Nothing orders the news of groups and those of Services.
        cluster.run(1)
        users.add_service(cluster, "web")
        cluster.run(2)
        assert {a: n for a, n in cluster.addresses().items() if n != "web"} == before
        assert addresses_of(cluster, "web") == [ip_address("172.28.1.100")]

    def test_a_group_is_added_named_and_deleted(self, cluster):
        users.put_group(cluster, "blue", v4="172.28.1.100-172.28.1.120")
        users.add_service(cluster, "web")
        users.change_group(cluster, "web", "blue")
        cluster.run(2)
        (address,) = addresses_of(cluster, "web")
        assert address == ip_address("172.28.1.100")
        users.drop_group(cluster, "blue")
        cluster.run(2)
        assert addresses_of(cluster, "web") == [address]


class TestConfigurations:
    def test_nodes_that_none_selects_announce_nothing(self, cluster):
        users.label(cluster, cluster.nodes["n1"], rack="a")
        users.configure(cluster, "rack-a", local={}, labels={"rack": "a"})
        cluster.run(2)
        assert len(won(cluster, "n1")) == len(cluster.addresses())
        users.unconfigure(cluster, "rack-a")
        cluster.run(2)
        assert all(cluster.holders(a) == rank(THREE, a)[:1] for a in cluster.addresses())

    def test_an_interface_of_another_subnet(self, cluster):
        users.connect_other_segment(cluster, cluster.nodes["n1"], cluster.nodes["n2"])
        users.put_group(cluster, "other", other4="172.28.2.200-172.28.2.220")
        users.add_service(cluster, "web")
        users.change_group(cluster, "web", "other")
        cluster.run(2)
        (address,) = addresses_of(cluster, "web")
        assert cluster.holders(address) == []
        users.configure(cluster, "default", local={"interfaces": ["eth1"]})
        cluster.run(2)
        assert cluster.holders(address) == rank(("n1", "n2"), address)[:1]


class TestNodes:
    def test_a_taint_is_put_on_and_taken_off(self, cluster):
        node = cluster.nodes["n1"]
        before = won(cluster, "n1")
        assert users.taint(cluster, node, DRAINING_TAINTS[0]).startswith("n1 gets the taint node.")
        cluster.run(2)
        assert (won(cluster, "n1"), bool(before)) == ([], True)
        users.untaint(cluster, node, DRAINING_TAINTS[0])
        cluster.run(2)
        assert won(cluster, "n1") == before

    def test_a_node_is_deleted_and_created_again(self, cluster):
        node = cluster.nodes["n1"]
        before, uid = won(cluster, "n1"), cluster.find("nodes", "", "n1")["metadata"]["uid"]
        users.delete_node(cluster, node)
        cluster.run(20)
        assert (won(cluster, "n1"), lease(cluster, "n1")) == ([], None)
        users.create_node(cluster, node)
        cluster.run(20)
        assert won(cluster, "n1") == before
        assert lease(cluster, "n1")["metadata"]["ownerReferences"][0]["uid"] != uid

    def test_the_lease_of_a_deleted_node_is_collected(self, cluster):
        node = cluster.nodes["n1"]
        cluster.power_off(node)
        users.delete_node(cluster, node)
        cluster.run(2)
        assert lease(cluster, "n1") is not None
        cluster.run(2)
        assert lease(cluster, "n1") is None


class TestAgents:
    def test_a_roll_out_gives_all_another_timing(self, cluster):
        cluster.kill_agent(cluster.nodes["n2"])
        users.roll_out(cluster, FAST)
        cluster.run(30)
        durations = [lease(cluster, name)["spec"]["leaseDurationSeconds"] for name in THREE]
        assert durations == [5, 10, 5]
        users.restart_agent(cluster, cluster.nodes["n2"])
        cluster.run(20)
        assert lease(cluster, "n2")["spec"]["leaseDurationSeconds"] == 5

    def test_keys_are_read_again_and_none_are_missed_at_the_start(self, cluster):
        node = cluster.nodes["n1"]
        users.give_keys(node, PeerKeys(OTHER.signing, KEYS.accepted))
        cluster.run(10)
        published = lease(cluster, "n1")["metadata"]["annotations"][PEER_KEYS_ANNOTATION]
        assert published == f"{OTHER.ids[0]},{KEYS.ids[0]}"
        cluster.kill_agent(node)
        assert users.give_keys(node, None) == "n1 has the peers' keys none"
        users.restart_agent(cluster, node)
        cluster.run(10)
        assert PEER_KEYS_ANNOTATION not in lease(cluster, "n1")["metadata"]["annotations"]


class TestInvariants:
    def test_an_address_may_be_of_two_services_by_a_key(self, cluster):
        for name, port in (("one", 80), ("two", 81)):
            users.add_service(cluster, name)
            users.share(cluster, name, "k", port)
            users.ask_for(cluster, name, ASKED)
            cluster.run(2)
        both = [cluster.find("services", "default", name) for name in ("one", "two")]
        assert both[0]["status"] == both[1]["status"]
        assert given_twice(cluster) == []
        users.share(cluster, "two", "another", 81)
        assert given_twice(cluster) == [f"{ASKED}: one and two"]

    def test_an_address_of_no_service_leaks_after_a_while(self, cluster):
        leaks = Leaks(10)
        assert (ownerless(cluster), leaks.look(cluster)) == ([], [])
        (address, *_more) = won(cluster, "n1")
        cluster.kill_agent(cluster.nodes["n1"])
        cluster.drop("services", "default", cluster.addresses()[address])
        cluster.run(1)
        assert f"{address} on n1" in ownerless(cluster)
        assert leaks.look(cluster) == []
        # Without an agent the kernel would remove it.
        cluster.nodes["n1"].kernel.held[2, address].valid_until += 100
        cluster.run(11)
        assert leaks.look(cluster) == [f"{address} on n1"]

    def test_hosts_are_misled_until_they_ask_again(self, cluster):
        for address in cluster.addresses():
            cluster.segment.use(cluster.host, address)
        assert misled(cluster) == []
        (address, *_more) = won(cluster, "n1")
        cluster.host.neighbors[address] = b"\6\0\0\0\0\1"
        assert misled(cluster) == [f"client looks for {address} at 06:00:00:00:00:01"]
        del cluster.host.neighbors[address]
        assert misled(cluster) == [f"client looks for {address} at no host"]

    @pytest.mark.parametrize(
        ("fault", "is_heard"),
        [
            (lambda _cluster: None, True),
            (lambda cluster: cluster.divide(("n1", "client"), ("n2", "n3")), False),
            (lambda cluster: cluster.lose("client", "n1"), False),
            (lambda cluster: cluster.cut("n1", "n2"), True),
        ],
        ids=["whole", "divided", "not heard by n1", "nodes do not hear each other"],
    )
    def test_two_holders_count_where_a_host_hears_both(self, cluster, fault, is_heard):
        history = History(cluster)
        fault(cluster)
        (address, *_more) = won(cluster, "n1")
        # The agent takes it for its node's own address, and leaves it alone.
        cluster.nodes["n2"].kernel.add_address(2, address, 24 if address.version == 4 else 64)
        cluster.run(1)
        assert history.twice() == pytest.approx(1)
        assert history.heard_twice() == (pytest.approx(1) if is_heard else 0)
        cluster.heal()
        cluster.run(2)
        assert history.heard_twice() == pytest.approx(3 if is_heard else 2)

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Frames on a segment, and questions between agents."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

import pytest

from purelb.core.holding.peer_keys import PeerKeys
from purelb.core.names import ANSWERING_ANNOTATION, DUPLICATES_ANNOTATION
from purelb.core.node.packets import build_announcement, build_probe
from purelb_agent.peers.http import PATH
from purelb_agent.peers.peers import Peers
from simulation.chance import stream
from simulation.cluster import simulated
from simulation.history import History
from simulation.node.hosts import Host
from simulation.node.http import ModelPeers, ModelServer, Network
from simulation.node.kernel import Kernel
from simulation.node.messages import LinkState
from simulation.node.wire import Frame, Segment, read_frame
from simulation.time.machine import Machine
from simulation.time.process import Process
from simulation.time.timeline import MICROSECONDS

V4, V6 = ip_address("172.28.1.220"), ip_address("fd28::220")
MAC = b"\x02\0\0\0\0\1"
BOTH = pytest.mark.parametrize("vip", [V4, V6], ids=["v4", "v6"])


@BOTH
class TestFrames:
    def test_an_announcement_claims_the_address(self, vip):
        frames = [read_frame(data) for data in build_announcement(MAC, vip)]
        assert {(frame.mac, frame.claims) for frame in frames} == {(MAC, vip)}

    def test_a_probe_asks_and_claims_nothing(self, vip):
        assert read_frame(build_probe(MAC, vip)) == Frame(MAC, asks=vip)

    def test_an_announcement_replaces_what_hosts_know_that_asked(self, timeline, vip):
        segment, knows, other = Segment(timeline, lambda: 0.001), Host(), Host()
        segment.hosts += [knows, other]
        knows.neighbors[vip] = b"before"
        with simulated(1) as cluster:
            node = cluster.nodes["n1"]
            segment.attach(node.kernel, node.eth0)
            segment.send(node.kernel, "eth0", build_announcement(MAC, vip))
        timeline.run(MICROSECONDS)
        assert (knows.neighbors, other.neighbors) == ({vip: MAC}, {})


def test_what_is_no_frame_of_ours_is_an_error():
    with pytest.raises(ValueError, match="neither ARP nor"):
        read_frame(bytes(60))
    na = bytearray(build_announcement(MAC, V6)[0])
    na[58] = 0
    with pytest.raises(ValueError, match="does not replace"):
        read_frame(bytes(na))


@pytest.mark.parametrize("interface", ["eth1", "eth0"])
def test_an_interface_that_is_down_or_gone_sends_nothing(timeline, interface):
    with simulated(1) as cluster:
        node = cluster.nodes["n1"]
        node.eth0.is_up = False
        with pytest.raises(OSError, match=f"{interface} is down"):
            cluster.segment.send(node.kernel, interface, build_announcement(MAC, V4))


@pytest.mark.parametrize("version", [4, 6])
def test_an_agent_hears_another_host_with_its_address_and_lists_it(version):
    with simulated(3) as cluster:
        cluster.start()
        cluster.run(25)
        cluster.add_service("web")
        cluster.run(100)
        (vip,) = (a for a in cluster.addresses() if a.version == version)
        (holder,) = cluster.holders(vip)
        stranger = Kernel(Machine(cluster.timeline, "stranger"), stream(3, "stranger"))
        eth0 = LinkState(2, "eth0", b"\x06\0\0\0\0\7")
        stranger.add_link(eth0)
        cluster.segment.attach(stranger, eth0)
        stranger.add_address(2, vip, 24 if version == 4 else 64)
        cluster.run(60)
        lease = cluster.find("leases", "purelb-system", f"purelb-node-{holder}")
        assert lease["metadata"]["annotations"].get(DUPLICATES_ANNOTATION) == str(vip)


def test_nodes_that_answer_for_all_addresses_move_no_service():
    with simulated(3) as cluster:
        cluster.segment.is_everywhere = lambda address: address in cluster.addresses()
        cluster.start()
        cluster.run(25)
        before = {}
        for number in range(5):
            cluster.add_service(f"web-{number}")
            cluster.run(20)
            found = cluster.addresses()
            assert before.items() <= found.items()
            before = found
        assert len(before) == 10
        leases = [
            cluster.find("leases", "purelb-system", f"purelb-node-{n}") for n in cluster.nodes
        ]
        notes = [lease["metadata"]["annotations"] for lease in leases]
        assert all(DUPLICATES_ANNOTATION not in note for note in notes)
        named = {node for note in notes for node in note[ANSWERING_ANNOTATION].split(",")}
        assert named == set(cluster.nodes)


@BOTH
class TestAMachineThatDoesNotRun:
    @pytest.mark.parametrize("stop", ["pause", "suspend"])
    def test_answers_no_host(self, vip, stop):
        with simulated(1) as cluster:
            node, other, host = cluster.nodes["n1"], cluster.nodes["n2"], Host()
            node.kernel.add_address(2, vip, 24 if vip.version == 4 else 64)
            assert cluster.segment.heard_by(cluster.host, vip) == ["n1"]
            assert other.kernel.is_taken(other.eth0, vip)
            getattr(cluster, stop)(node)
            cluster.segment.ask(host, vip)
            assert cluster.segment.heard_by(cluster.host, vip) == cluster.holders(vip) == []
            assert not other.kernel.is_taken(other.eth0, vip)
            assert host.neighbors == {}
            cluster.resume(node)
            assert (cluster.segment.heard_by(cluster.host, vip), cluster.holders(vip)) == (
                ["n1"],
                ["n1"],
            )

    @pytest.mark.parametrize(("stop", "frames"), [("pause", 1), ("suspend", 0)])
    def test_finds_later_what_came_unless_it_slept(self, vip, stop, frames):
        with simulated(1) as cluster:
            node, other, seen = cluster.nodes["n1"], cluster.nodes["n2"], []
            process = Process(node.machine, "listens")
            listening = cluster.segment.listen(node.kernel, process, "eth0")
            listening.on_readable(lambda: seen.append(listening.recv(100)))
            getattr(cluster, stop)(node)
            cluster.segment.send(other.kernel, "eth0", build_announcement(MAC, vip)[:1])
            cluster.run(1)
            assert seen == []
            cluster.resume(node)
            cluster.run(1)
            assert len(seen) == frames
            process.close()


def test_a_node_that_does_not_run_is_no_holder_in_the_history():
    with simulated(1) as cluster:
        node = cluster.nodes["n1"]
        history = History(cluster)
        node.kernel.add_address(2, V4, 24)
        cluster.run(1)
        cluster.pause(node)
        cluster.run(12)
        cluster.resume(node)
        cluster.run(2)
        assert history.spans(V4) == [(1, {"n1"}), (12, set()), (2, {"n1"})]


PATHS = {"sender lost": ("n1", "client"), "receiver lost": ("client", "n1")}


class OnASegment:
    """A segment of two nodes, n1 and n2, and a host."""

    @pytest.fixture
    def segment(self, timeline):
        made = Segment(timeline, lambda: 0.001, seed=1)
        made.hosts.append(Host())
        self.kernels = {}
        for number in (1, 2):
            name = f"n{number}"
            kernel = self.kernels[name] = Kernel(Machine(timeline, name), stream(1, name))
            eth0 = LinkState(2, "eth0", b"\x02\0\0\0\0" + bytes([number]))
            kernel.add_link(eth0)
            made.attach(kernel, eth0)
        return made

    def announce(self, segment, timeline, name, vip=V4):
        kernel = self.kernels[name]
        segment.send(kernel, "eth0", build_announcement(kernel.links[2].mac, vip))
        timeline.run(timeline.now + MICROSECONDS // 100)


class TestTopology(OnASegment):
    def answers(self, segment, vip=V4):
        (host,) = segment.hosts
        host.neighbors.clear()
        segment.ask(host, vip)
        return host.neighbors.get(vip)

    def test_frames_of_one_direction_get_lost(self, timeline, segment):
        (host,) = segment.hosts
        host.neighbors[V4] = b"before"
        segment.paths.lose("n1", "client")
        self.announce(segment, timeline, "n1")
        assert host.neighbors[V4] == b"before"
        segment.paths.heal()
        self.announce(segment, timeline, "n1")
        assert host.neighbors[V4] == MAC

    @pytest.mark.parametrize("lost", PATHS.values(), ids=PATHS)
    def test_who_asks_must_be_heard_and_hear(self, segment, lost):
        self.kernels["n1"].add_address(2, V4, 24)
        assert self.answers(segment) == MAC
        segment.paths.lose(*lost)
        assert self.answers(segment) is None
        assert segment.heard_by(segment.hosts[0], V4) == []

    def test_a_share_of_the_frames_gets_lost(self, segment):
        self.kernels["n1"].add_address(2, V4, 24)
        segment.paths.lose_everywhere(0.3)
        answered = sum(self.answers(segment) is not None for _ in range(1000))
        assert answered == pytest.approx(1000 * 0.7 * 0.7, rel=0.1)
        assert segment.heard_by(segment.hosts[0], V4) == ["n1"]

    def test_sides_hear_their_own(self, segment):
        for kernel in self.kernels.values():
            kernel.add_address(2, V4, 24)
        segment.paths.divide(["n1"], ["client", "n2"])
        assert segment.heard_by(segment.hosts[0], V4) == ["n2"]
        segment.paths.heal()
        assert segment.heard_by(segment.hosts[0], V4) == ["n1", "n2"]

    @pytest.mark.parametrize("lost", [("n1", "n2"), ("n2", "n1")], ids=["question", "answer"])
    def test_a_duplicate_is_found_only_where_both_directions_work(self, timeline, segment, lost):
        self.kernels["n1"].add_address(2, V6, 64)
        segment.paths.lose(*lost)
        assert not self.kernels["n2"].is_taken(self.kernels["n2"].links[2], V6)
        segment.paths.heal()
        assert self.kernels["n2"].is_taken(self.kernels["n2"].links[2], V6)

    @pytest.mark.parametrize(
        ("lost", "heard"),
        [(("n2", "n1"), False), (("n1", "n2"), False), (("n2", "client"), True)],
    )
    def test_a_probe_is_answered_where_both_directions_work(
        self, timeline, process, segment, lost, heard
    ):
        self.kernels["n2"].add_address(2, V4, 24)
        socket = segment.listen(self.kernels["n1"], process, "eth0")
        segment.paths.lose(*lost)
        segment.send(self.kernels["n1"], "eth0", [build_probe(MAC, V4)])
        timeline.run(MICROSECONDS)
        if heard:
            assert read_frame(socket.recv(2048)).claims == V4
        with pytest.raises(BlockingIOError):
            socket.recv(2048)


class TestHostsThatUseAnAddress(OnASegment):
    @pytest.fixture
    def host(self, segment):
        (host,) = segment.hosts
        self.kernels["n1"].add_address(2, V4, 24)
        return host

    def move(self):
        self.kernels["n1"].remove_address((2, V4))
        self.kernels["n2"].add_address(2, V4, 24)

    def test_a_silent_neighbour_is_given_up_after_a_while(self, timeline, segment, host):
        use = segment.use(host, V4)
        self.move()
        found_at = self.seconds_until(timeline, lambda: host.neighbors.get(V4) != MAC)
        assert 15 + 8 <= found_at <= 45 + 8
        assert host.neighbors[V4][-1] == 2
        use.end()

    def test_one_that_answers_stays(self, timeline, segment, host):
        segment.use(host, V4)
        timeline.run(600 * MICROSECONDS)
        assert host.neighbors[V4] == MAC

    def test_without_use_no_host_looks(self, timeline, segment, host):
        segment.use(host, V4).end()
        self.move()
        timeline.run(600 * MICROSECONDS)
        assert host.neighbors[V4] == MAC

    def test_who_has_announced_and_does_not_answer_is_given_up_sooner(
        self, timeline, segment, host
    ):
        segment.use(host, V4)
        segment.paths.lose("client", "n2")
        self.announce(segment, timeline, "n2")
        assert host.neighbors[V4][-1] == 2
        found_at = self.seconds_until(timeline, lambda: host.neighbors[V4] == MAC)
        assert found_at == pytest.approx(8, abs=0.2)

    def test_an_address_that_no_node_has_is_asked_for_until_one_has(self, timeline, segment, host):
        segment.use(host, V6)
        timeline.run(100 * MICROSECONDS)
        assert V6 not in host.neighbors
        self.kernels["n2"].add_address(2, V6, 64)
        timeline.run(102 * MICROSECONDS)
        assert host.neighbors[V6][-1] == 2

    @staticmethod
    def seconds_until(timeline, happened):
        began = timeline.now
        while not happened() and timeline.now < began + 120 * MICROSECONDS:
            timeline.run(timeline.now + MICROSECONDS // 10)
        return (timeline.now - began) / MICROSECONDS


class TestPeers:
    def peers(self, network, process, name):
        carrier = ModelPeers(network, process, PATH, 7472)
        return Peers(name, lambda: PeerKeys(b"a key of all agents"), send=carrier.send)

    def ask(self, timeline, process, *, port=7472, lost=(), break_it=lambda _process: None):
        """Let the agent n1 ask n2 and n3; n2 answers at `port`, n3 is not there."""
        network = Network(timeline, lambda: 0.01)
        if lost:
            network.paths.lose(*lost)
        other = Process(Machine(timeline, "n2"), "agent n2")
        asked = self.peers(network, other, "n2")

        async def answer(body):
            return {"heard": body}

        asked.answers["kind"] = answer
        answers = []

        async def answering():
            there = ModelServer(
                network, other, (V4,), None, port=port, is_ready=bool, routes={PATH: asked.handle}
            )
            async with there:
                await asyncio.sleep(60)

        async def asking():
            await asyncio.sleep(1)
            break_it(other)
            peers = {"n2": [V4, V6], "n3": [V6]}
            began = timeline.now
            answers.append(await self.peers(network, process, "n1").ask(peers, "kind", {"x": 1}))
            answers.append((timeline.now - began) / MICROSECONDS)

        other.start(answering())
        process.start(asking())
        timeline.run(100 * MICROSECONDS)
        other.close()
        assert process.error is None
        return answers

    def test_a_question_is_answered_by_the_agents_own_code(self, timeline, process):
        answers, seconds = self.ask(timeline, process)
        assert answers == {"n2": {"heard": {"x": 1}}}
        assert seconds == 0.02

    @pytest.mark.parametrize(
        ("break_it", "port", "seconds"),
        [
            (lambda _other: None, 7473, 0.02),
            (lambda other: other.kill(), 7472, 0.02),
            (lambda other: other.freeze(), 7472, 1.0),
            (lambda other: other.machine.pause(), 7472, 1.0),
            (lambda other: other.machine.suspend(), 7472, 1.0),
        ],
        ids=["other port", "dead", "frozen", "paused", "asleep"],
    )
    def test_one_that_does_not_answer_is_silent(self, timeline, process, break_it, port, seconds):
        answers, took = self.ask(timeline, process, port=port, break_it=break_it)
        assert answers == {}
        assert took == seconds

    @pytest.mark.parametrize("lost", [("n1", "n2"), ("n2", "n1")], ids=["question", "reply"])
    def test_a_message_that_gets_lost_leaves_silence(self, timeline, process, lost):
        answers, took = self.ask(timeline, process, lost=lost)
        assert answers == {}
        assert took == 1.0

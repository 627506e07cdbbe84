# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Frames on a segment, and questions between agents."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address

import pytest

from purelb.core.election.peer_keys import PeerKeys
from purelb.core.election.peers import PeerAnswer
from purelb.core.names import DUPLICATES_ANNOTATION
from purelb.core.node.packets import build_announcement, build_probe
from purelb.core.settings import LeaseTiming
from purelb_agent.lease.peer_http import PATH
from purelb_agent.lease.peers import Peers
from simulation.chance import stream
from simulation.cluster import simulated
from simulation.history import History
from simulation.node.http import ModelPeers, ModelServer, Network
from simulation.node.kernel import Kernel
from simulation.node.messages import LinkState
from simulation.node.wire import Frame, Host, Segment, read_frame
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


@BOTH
class TestAMachineThatDoesNotRun:
    @pytest.mark.parametrize("stop", ["pause", "suspend"])
    def test_answers_nobody(self, vip, stop):
        with simulated(1) as cluster:
            node, other, host = cluster.nodes["n1"], cluster.nodes["n2"], Host()
            node.kernel.add_address(2, vip, 24 if vip.version == 4 else 64)
            assert cluster.segment.holders(vip) == [node.kernel]
            assert other.kernel.is_taken(other.eth0, vip)
            getattr(cluster, stop)(node)
            cluster.segment.ask(host, vip)
            assert (cluster.segment.holders(vip), cluster.holders(vip)) == ([], [])
            assert not other.kernel.is_taken(other.eth0, vip)
            assert host.neighbors == {}
            cluster.resume(node)
            assert (cluster.segment.holders(vip), cluster.holders(vip)) == ([node.kernel], ["n1"])

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


class Answers:
    """Promises all that it is asked for."""

    def promise(self, _node, *, seconds):
        return seconds > 0


class TestPeers:
    def peers(self, network, process, name, *, can):
        async def could_renew():
            return can

        carrier = ModelPeers(network, process, PATH, 7472)
        return Peers(
            name,
            lambda: PeerKeys(b"a key of all agents"),
            timing=LeaseTiming(),
            could_renew=could_renew,
            promises=Answers(),
            get=carrier.get,
        )

    def ask(self, timeline, process, *, can, port=7472, break_it=lambda _process: None):
        """Let the agent n1 ask n2 and n3; n2 answers at `port`, n3 is not there."""
        network = Network(timeline, lambda: 0.01)
        other = Process(Machine(timeline, "n2"), "agent n2")
        asked = self.peers(network, other, "n2", can=can)
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
            members = {"n1": [], "n2": [V4, V6], "n3": [V6]}
            began = timeline.now
            answers.append(await self.peers(network, process, "n1", can=False).ask(members))
            answers.append((timeline.now - began) / MICROSECONDS)

        other.start(answering())
        process.start(asking())
        timeline.run(100 * MICROSECONDS)
        other.close()
        assert process.error is None
        return answers

    @pytest.mark.parametrize(("can", "says"), [(True, "can"), (False, "cannot")])
    def test_a_question_is_answered_by_the_agents_own_code(self, timeline, process, can, says):
        answers, seconds = self.ask(timeline, process, can=can)
        assert answers["n2"] is PeerAnswer[says.upper()]
        assert answers["n3"] is PeerAnswer.SILENT
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
        answers, took = self.ask(timeline, process, can=True, port=port, break_it=break_it)
        assert answers == dict.fromkeys(["n2", "n3"], PeerAnswer.SILENT)
        assert took == seconds

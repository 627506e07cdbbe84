# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The whole node agent in virtual time, with a fake API and a fake kernel."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from purelb.core.errors import SettingError
from purelb.core.holding.messages import build_message, question_body
from purelb.core.holding.outage import OUTAGE
from purelb.core.holding.peer_keys import PeerKeys
from purelb.core.holding.permissions import PermissionQuestion
from purelb.core.names import (
    ANNOUNCING_ANNOTATIONS,
    DUPLICATES_ANNOTATION,
    FENCE_ANNOTATION,
    PEER_KEYS_ANNOTATION,
    RULES_ANNOTATION,
    SERVICE_PROXY_ANNOTATION,
)
from purelb.core.node.conflicts import DuplicateAddress
from purelb.core.node.service_proxy import Answer
from purelb_agent.holding import over
from purelb_agent.holding.questions import KIND
from purelb_agent.kube.client import ApiError
from purelb_agent.node import main as program
from purelb_agent.runtime import clock
from purelb_agent.runtime.tasks import TaskEndedError
from tests.support.agent.fake_agents import peer_lease
from tests.support.agent.kubernetes_objects import NAMESPACE, lease_object, node_object
from tests.support.agent.whole_agent import LEASE, SERVICE, VIPS, Cluster, Request, run_for
from tests.support.core.snapshots import VIP4, VIP6

ENVIRONMENT = {"PURELB_NODE_NAME": "n1", "PURELB_POD_UID": "pod-n1"}
LISTED_AGAIN = (LEASE.rpartition("/")[0], "/api/v1/nodes")


@pytest.fixture
def keys(tmp_path):
    (tmp_path / "key").write_bytes(b"x" * 32)
    return tmp_path


@pytest.fixture
def settings(keys):
    return program.AgentSettings.read(ENVIRONMENT, port=7472, keys=keys)


@pytest.fixture
def cluster(settings):
    made = Cluster()
    made.settings = settings
    return made


class TestSettings:
    @pytest.mark.parametrize("name", ENVIRONMENT)
    def test_a_missing_identity_is_an_error_with_the_remedy(self, keys, name):
        environ = {key: value for key, value in ENVIRONMENT.items() if key != name}
        with pytest.raises(SettingError, match=rf"{name}.*purelb_install"):
            program.AgentSettings.read(environ, port=7472, keys=keys)

    def test_the_defaults(self, settings):
        assert settings.identity == program.Identity("n1", "pod-n1", NAMESPACE)
        assert settings.keys() == PeerKeys(b"x" * 32)
        assert settings.key_ids() == PeerKeys(b"x" * 32).ids
        assert replace(settings, keys=None) == program.AgentSettings(settings.identity)

    def test_switches_that_are_off(self, keys):
        names = ("PURELB_OUTAGE_HOLD", "PURELB_CLAIM_UNCLASSED", "PURELB_DRAINING")
        environ = {**ENVIRONMENT, **dict.fromkeys(names, "off")}
        made = program.AgentSettings.read(environ, port=7472, keys=keys)
        assert (made.keys, made.key_ids(), made.drains) == (None, (), False)
        assert None not in made.classes

    def test_the_label_counts_where_it_is_switched_on(self, keys, settings):
        assert not settings.excludes
        environ = {**ENVIRONMENT, "PURELB_EXCLUDE_LABELLED_NODES": "on"}
        assert program.AgentSettings.read(environ, port=7472, keys=keys).excludes

    def test_the_fence_can_be_switched_off(self, keys, settings):
        assert settings.fences
        environ = {**ENVIRONMENT, "PURELB_FENCE": "off"}
        assert not program.AgentSettings.read(environ, port=7472, keys=keys).fences

    def test_the_port_of_the_service_proxy(self, keys, settings):
        assert settings.service_proxy_port == 10256
        environ = {**ENVIRONMENT, "PURELB_SERVICE_PROXY_PORT": "10999"}
        made = program.AgentSettings.read(environ, port=7472, keys=keys)
        assert made.service_proxy_port == 10999


class TestRun:
    async def test_a_node_writes_its_lease_and_announces_its_addresses(self, cluster):
        task = await run_for(cluster, 15)
        assert cluster.lease["spec"]["holderIdentity"] == "n1"
        assert cluster.kernel.vips == VIPS
        assert cluster.annotations[ANNOUNCING_ANNOTATIONS[4]] == f"n1,eth0,{VIP4}"
        assert cluster.probes.is_ready()
        cluster.stop.set()
        await task

    async def test_the_fence_is_opened_with_the_first_right_and_removed_at_the_end(self, cluster):
        task = await run_for(cluster, 15)
        fence = cluster.fence
        assert len(fence.attached) == 2
        assert fence.vips == {address for _link, address in VIPS}
        assert cluster.lease["metadata"]["annotations"][FENCE_ANNOTATION] == "exact"
        cluster.stop.set()
        await task
        assert fence.attached == {}
        assert fence.is_closed

    async def test_the_lease_says_how_the_service_proxy_is_and_what_counts(self, cluster):
        cluster.settings = replace(cluster.settings, excludes=True)
        task = await run_for(cluster, 6)
        annotations = cluster.lease["metadata"]["annotations"]
        assert annotations[RULES_ANNOTATION] == "service-proxy,exclude-labelled-nodes"
        assert annotations[SERVICE_PROXY_ANNOTATION] == "well"
        assert cluster.service_proxy.port == 10256
        cluster.service_proxy.answer = Answer.NONE
        await asyncio.sleep(25)
        assert cluster.lease["metadata"]["annotations"][SERVICE_PROXY_ANNOTATION] == "ill"
        # It is the only node.
        assert cluster.kernel.vips == VIPS
        cluster.stop.set()
        await task

    async def test_without_a_port_the_service_proxy_is_not_asked(self, cluster):
        cluster.settings = replace(cluster.settings, service_proxy_port=0)
        task = await run_for(cluster, 6)
        assert SERVICE_PROXY_ANNOTATION not in cluster.lease["metadata"]["annotations"]
        cluster.stop.set()
        await task

    async def test_the_lease_is_renewed_and_the_addresses_stay(self, cluster):
        task = await run_for(cluster, 60)
        assert len(cluster.sent("PUT")) >= 10
        assert cluster.kernel.vips == VIPS
        cluster.stop.set()
        await task

    async def test_peers_are_answered_on_the_port_of_the_probes(self, cluster):
        task = await run_for(cluster, 1)
        assert list(cluster.probes.routes) == ["/peer"]
        cluster.stop.set()
        await task

    async def test_addresses_are_taken_over_when_the_lease_of_a_dead_peer_ends(self, cluster):
        cluster.put("/apis/coordination.k8s.io/v1/leases", peer_lease("n2"))
        task = await run_for(cluster, 9)
        assert cluster.kernel.vips == set()
        await asyncio.sleep(6)
        assert cluster.kernel.vips == VIPS
        cluster.stop.set()
        await task

    async def test_peers_are_asked_in_an_outage_and_told_when_the_right_is_over(self, cluster):
        cluster.put("/api/v1/nodes", node_object("n2", "10.0.0.2"))
        cluster.put("/apis/coordination.k8s.io/v1/leases", peer_lease("n2", duration=1000))
        task = await run_for(cluster, 15)
        assert {OUTAGE, over.KIND}.isdisjoint(cluster.wire.kinds)
        cluster.answer("PUT", LEASE, ApiError(0, "no route to host"))
        await asyncio.sleep(15)
        assert {OUTAGE, over.KIND} <= set(cluster.wire.kinds)
        cluster.stop.set()
        await task

    async def test_leases_and_nodes_are_listed_again_if_a_peer_has_seen_more(self, cluster):
        task = await run_for(cluster, 15)
        before = [len(cluster.sent("GET", path)) for path in LISTED_AGAIN]
        question = PermissionQuestion("n2", "n2.1", "n1", "n1.1", "nonce")
        body = question_body(question)
        message = build_message(b"x" * 32, peer="n1", kind=KIND, nonce="1", body=body)
        await cluster.probes.routes["/peer"](Request(message))
        await asyncio.sleep(1)
        after = [len(cluster.sent("GET", path)) for path in LISTED_AGAIN]
        assert after == [count + 1 for count in before]
        cluster.stop.set()
        await task

    async def test_a_watch_that_does_not_show_the_own_lease_is_begun_again(self, cluster, caplog):
        task = await run_for(cluster, 15)
        leases = LISTED_AGAIN[0]
        before = len(cluster.sent("WATCH", leases))
        cluster.silence(leases)
        await asyncio.sleep(30)
        assert "watchIsSilent" in caplog.messages
        assert len(cluster.sent("WATCH", leases)) == before + 1
        cluster.stop.set()
        await task

    async def test_a_rotation_is_followed_without_a_restart_and_shown_in_the_lease(
        self, cluster, keys
    ):
        task, shown = await run_for(cluster, 15), []
        old, new = b"x" * 32, b"y" * 32
        for files in ({"next": new}, {"key": new, "previous": old}, {"key": b"short"}):
            for name, content in files.items():
                (keys / name).write_bytes(content)
            (keys / "next").unlink() if "previous" in files else None
            await asyncio.sleep(10)
            shown.append(cluster.lease["metadata"]["annotations"][PEER_KEYS_ANNOTATION])
        accepted, signed = PeerKeys(old, (new,)), PeerKeys(new, (old,))
        # Of the last ones the key is too short: those before stay in use.
        assert shown == [",".join(keys.ids) for keys in (accepted, signed, signed)]
        assert cluster.kernel.vips == VIPS
        cluster.stop.set()
        await task

    async def test_addresses_that_another_host_has_are_listed_in_the_lease(self, cluster):
        task = await run_for(cluster, 15)
        written = len(cluster.sent("PUT"))
        for vip in (VIP4, VIP6):
            cluster.listener.on_conflict(DuplicateAddress(vip, 2, b"\2\0\0\0\0\1"))
        await asyncio.sleep(1)
        annotations = cluster.lease["metadata"]["annotations"]
        assert annotations[DUPLICATES_ANNOTATION] == f"{VIP4},{VIP6}"
        assert len(cluster.sent("PUT")) - written <= 2
        cluster.stop.set()
        await task

    async def test_addresses_that_another_node_answers_for_are_not(self, cluster):
        task = await run_for(cluster, 15)
        for vip in (VIP4, VIP6):
            cluster.listener.on_conflict(DuplicateAddress(vip, 2, b"\2\0\0\0\0\1", "n2"))
        await asyncio.sleep(6)
        assert DUPLICATES_ANNOTATION not in cluster.lease["metadata"]["annotations"]
        cluster.stop.set()
        await task

    async def test_without_a_key_peers_are_neither_asked_nor_answered(self, cluster, caplog):
        cluster.settings = replace(cluster.settings, keys=None)
        task = await run_for(cluster, 1)
        assert cluster.probes.routes == {}
        assert "peersNotAsked" in caplog.messages
        cluster.stop.set()
        await task


class TestStop:
    async def test_addresses_are_withdrawn_before_the_lease_is_deleted(self, cluster):
        task = await run_for(cluster, 15)
        held = []

        def delete(_request):
            held.append(cluster.kernel.vips)
            return {}

        cluster.answer("DELETE", LEASE, delete)
        cluster.stop.set()
        await task
        assert held == [set()]

    async def test_nothing_renews_the_lease_any_more_when_it_is_deleted(self, cluster):
        task = await run_for(cluster, 15)
        running = []

        def delete(_request):
            names = {other.get_name() for other in asyncio.all_tasks() if not other.done()}
            running.append(names & {"renew", "reconcile"})
            return {}

        cluster.answer("DELETE", LEASE, delete)
        cluster.stop.set()
        await task
        assert running == [set()]

    async def test_before_the_first_plan_the_lease_is_left_as_addresses_may_be(self, cluster):
        leases = "/apis/coordination.k8s.io/v1/leases"
        cluster.put(leases, lease_object("n1", holder="n1", instance="pod-n1"))
        cluster.hang("GET", "/api/v1/services")
        task = await run_for(cluster, 5)
        cluster.stop.set()
        await task
        assert cluster.sent("DELETE") == []
        assert cluster.lease is not None

    async def test_the_program_lingers_for_two_seconds_and_clears_its_annotations(self, cluster):
        task = await run_for(cluster, 15)
        cluster.stop.set()
        await task
        (deletion,) = cluster.sent("DELETE")
        assert clock.now() - deletion.at == pytest.approx(program.LINGER_SECONDS, abs=0.1)
        assert cluster.lease is None
        assert not cluster.annotations.keys() & set(ANNOUNCING_ANNOTATIONS.values())
        assert cluster.kernel.is_closed
        assert cluster.under_way == 0

    async def test_a_task_that_fails_ends_the_program_in_the_same_order(self, cluster):
        task = await run_for(cluster, 15)
        cluster.kernel.fails_once = True
        with pytest.raises(TaskEndedError, match="task reconcile ended"):
            await task
        assert cluster.kernel.vips == set()
        assert cluster.lease is None
        assert cluster.under_way == 0

    async def test_an_api_that_is_down_does_not_keep_the_program_from_ending(self, cluster):
        task = await run_for(cluster, 15)
        for method, path in (("GET", LEASE), ("PUT", LEASE), ("PATCH", SERVICE)):
            cluster.hang(method, path)
        cluster.stop.set()
        began = clock.now()
        await task
        assert clock.now() - began < 10
        assert cluster.kernel.vips == set()
        assert cluster.under_way == 0

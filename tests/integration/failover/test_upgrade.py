# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Agents are replaced under traffic: one node at a time, and a broken agent stops the rollout.

Each test prints figures of this machine; the asserted limits are the contract's.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby, pairwise
from typing import Any

import pytest

from labkit.lab import Lab
from labkit.probe.prober import Prober
from tests.support.lab.address_recorder import Holders, record_holders
from tests.support.lab.cluster_queries import (
    AGENTS,
    DAEMON_SET,
    GRACEFUL,
    IMAGE,
    LEASES,
    allocator_pods,
    eventually,
)
from tests.support.lab.faults import holders_of, is_ready, serve_addresses

pytestmark = pytest.mark.timeout(240)
NEXT = "localhost/purelb/purelb:next"
ABSENT = "localhost/purelb/purelb:absent"


@dataclass
class Moment:
    """A snapshot: the pods of ready agents by node, and the instance of each Lease."""

    time: float
    ready: dict[str, str]
    leases: dict[str, str]


@dataclass
class Rollout:
    """The snapshots while agents were replaced."""

    moments: list[Moment] = field(default_factory=list)

    def away(self, lab: Lab) -> list[frozenset[str]]:
        """Return the successive sets of nodes without a ready agent."""
        sets = [frozenset(lab.nodes) - moment.ready.keys() for moment in self.moments]
        return [nodes for nodes, _snapshots in groupby(sets)]

    def order(self, lab: Lab) -> list[str]:
        """Return the nodes in the order of their replacement; asserts one at a time."""
        away = self.away(lab)
        assert all(len(nodes) <= 1 for nodes in away), away
        return [node for nodes in away for node in nodes]

    def leaving(self, node: str) -> Moment:
        """Return the first snapshot without this node's agent."""
        return next(moment for moment in self.moments if node not in moment.ready)


def look(lab: Lab) -> Moment:
    pods = lab.api.items(AGENTS, labelSelector="component=lbnodeagent")
    leases = lab.api.items(LEASES, labelSelector="app.kubernetes.io/component=lbnodeagent")
    return Moment(
        time.monotonic(),
        {
            pod["spec"]["nodeName"]: pod["metadata"]["uid"]
            for pod in pods
            if "deletionTimestamp" not in pod["metadata"] and is_ready(pod)
        },
        {
            lease["metadata"]["name"].removeprefix("purelb-node-"): lease["metadata"][
                "annotations"
            ]["purelb.io/instance"]
            for lease in leases
        },
    )


@contextmanager
def following(lab: Lab) -> Iterator[Rollout]:
    """Record continuously in the background which agents are ready."""
    rollout, ended = Rollout([look(lab)]), threading.Event()

    def follow() -> None:
        while not ended.wait(0.05):
            rollout.moments.append(look(lab))

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield rollout
    finally:
        ended.set()
        thread.join()


@pytest.fixture(scope="module")
def install(cluster: Lab, playbook: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Runs the installation; restores the original one after the tests."""
    last: dict[str, object] = {}

    def run(*, check: bool = True, **variables: object) -> Any:
        last.clear()
        last.update(variables)
        given = {"image": IMAGE, "wait_timeout": 60, **variables}
        given = {f"purelb_install_{name}": value for name, value in given.items()}
        return playbook("purelb.purelb.install", "-e", json.dumps(given), check=check)

    yield run
    if last:
        run()


@pytest.fixture(scope="module")
def _next(cluster: Lab) -> None:
    """Add a second tag to the image on every node."""
    for node in cluster.nodes:
        cluster.ctr(node, "images", "tag", "--force", IMAGE, NEXT)


@pytest.fixture
def vips(cluster: Lab, make_service: Callable[..., str]) -> list[str]:
    """Eight addresses of both families, on all nodes."""
    found = serve_addresses(cluster, make_service)
    on = holders_of(cluster, *found)
    assert {node for nodes in on.values() for node in nodes} == set(cluster.nodes)
    return found


def restart(lab: Lab) -> None:
    """Restart the agents as kubectl rollout restart does; wait for the end."""
    stamp = {"annotations": {"kubectl.kubernetes.io/restartedAt": str(time.time())}}
    lab.api.merge_patch(DAEMON_SET, {"spec": {"template": {"metadata": stamp}}})
    lab.api.wait(DAEMON_SET, is_rolled_out, what="rollout", seconds=90)


def is_rolled_out(daemon_set: dict[str, Any]) -> bool:
    status, metadata = daemon_set["status"], daemon_set["metadata"]
    nodes = status["desiredNumberScheduled"]
    return bool(
        status["observedGeneration"] >= metadata["generation"]
        and status.get("updatedNumberScheduled") == nodes == status.get("numberAvailable")
    )


def change_a_tunable(install: Callable[..., Any], _lab: Lab) -> None:
    install(log_level="debug")


def change_the_image(install: Callable[..., Any], _lab: Lab) -> None:
    install(image=NEXT)


def restart_by_hand(_install: Callable[..., Any], lab: Lab) -> None:
    restart(lab)


@pytest.mark.usefixtures("_next")
@pytest.mark.parametrize(
    "upgrade",
    [
        pytest.param(change_the_image, id="other image"),
        pytest.param(change_a_tunable, id="changed tunable", marks=pytest.mark.thorough),
        pytest.param(restart_by_hand, id="kubectl rollout restart", marks=pytest.mark.thorough),
    ],
)
def test_nodes_are_replaced_one_at_a_time_under_traffic(cluster, install, vips, upgrade, figure):
    holder_by_vip = {vip: next(iter(nodes)) for vip, nodes in holders_of(cluster, *vips).items()}
    before = look(cluster)
    with (
        Prober(cluster, *vips) as prober,
        record_holders(cluster, *vips) as holders,
        following(cluster) as rollout,
    ):
        for vip in vips:
            prober.wait_for_answer(vip, after=0, seconds=15)
        start = time.monotonic()
        upgrade(install, cluster)
        seconds = time.monotonic() - start
        time.sleep(2)
        gaps = {vip: prober.longest_gap(vip, since=start) for vip in vips}
    after = look(cluster)
    worst = {
        family: max(gap for vip, gap in gaps.items() if (":" in vip) == (family == 6))
        for family in (4, 6)
    }
    figure(
        f"{len(cluster.nodes)} nodes in {seconds:.0f} s, clients without answer at most "
        f"{worst[4]:.2f} s (IPv4), {worst[6]:.2f} s (IPv6)"
    )
    order = rollout.order(cluster)
    assert sorted(order) == sorted(cluster.nodes)
    assert not set(before.ready.values()) & set(after.ready.values())
    for done, leaving in pairwise(order):
        moment = rollout.leaving(leaving)
        assert moment.leases[done] == moment.ready[done], f"{done} without Lease of its new agent"
        for vip in (vip for vip, home in holder_by_vip.items() if home == done):
            assert done in at(holders, moment.time)[vip], f"{vip} was not back on {done}"
    assert {
        vip: next(iter(nodes)) for vip, nodes in holders_of(cluster, *vips).items()
    } == holder_by_vip
    assert max(gaps.values()) < GRACEFUL


def at(holders: Holders, moment: float) -> dict[str, frozenset[str]]:
    """Return the holders of each address at a time."""
    return [held for when, held in holders.samples if when <= moment][-1]


def said(done: Any) -> str:
    return " ".join(done.stdout.split())


def ready_allocators(lab: Lab) -> set[str]:
    return {pod["metadata"]["name"] for pod in allocator_pods(lab) if is_ready(pod)}


class TestBrokenAgents:
    """The rollout stops early and reports the reason; another run repairs it."""

    def test_missing_image_stops_before_the_first_node(self, cluster, install, vips):
        before, on, leading = look(cluster), holders_of(cluster, *vips), ready_allocators(cluster)
        done = install(image=ABSENT, wait_timeout=10, check=False)
        assert done.returncode != 0
        assert "Deployment purelb-system/allocator is not ready after 10 s" in said(done)
        assert any(f"{why}: " in said(done) for why in ("ErrImagePull", "ImagePullBackOff"))
        assert ABSENT in said(done)
        assert look(cluster).ready == before.ready
        assert holders_of(cluster, *vips) == on
        assert ready_allocators(cluster) == leading
        install()
        eventually(
            lambda: all(map(is_ready, allocator_pods(cluster))), "all allocators", seconds=60
        )

    @pytest.mark.thorough
    def test_agent_that_does_not_start_stops_the_rollout_at_its_node(
        self, cluster, install, vips, figure
    ):
        before = look(cluster)
        with Prober(cluster, *vips) as prober, following(cluster) as rollout:
            for vip in vips:
                prober.wait_for_answer(vip, after=0, seconds=15)
            start = time.monotonic()
            resources = {"requests": {"cpu": "1000"}}
            done = install(agent_resources=resources, wait_timeout=10, check=False)
            gap = max(prober.longest_gap(vip, since=start) for vip in vips)
        figure(f"client without answer {gap:.2f} s")
        (broken,) = set(rollout.order(cluster))
        others = sorted(set(cluster.nodes) - {broken})
        assert done.returncode != 0
        assert f"no progress for 10 s: {broken}: Pod lbnodeagent-" in said(done)
        assert "Insufficient cpu" in said(done)
        assert f"Still with the previous agent: {', '.join(others)}." in said(done)
        assert look(cluster).ready == {node: before.ready[node] for node in others}
        on = holders_of(cluster, *vips)
        assert all(len(nodes) == 1 and broken not in nodes for nodes in on.values())
        assert gap < GRACEFUL
        again = install()
        assert f"{broken} runs the current agent" in again.stdout
        assert look(cluster).ready.keys() == set(cluster.nodes)

    @pytest.mark.thorough
    def test_broken_image_set_by_hand_stops_at_the_first_node(self, cluster, install, vips):
        before = look(cluster)
        with following(cluster) as rollout:
            patch = [{"name": "lbnodeagent", "image": ABSENT}]
            change = {"spec": {"template": {"spec": {"containers": patch}}}}
            kind = "application/strategic-merge-patch+json"
            cluster.api.call("PATCH", DAEMON_SET, change, kind=kind)
            eventually(lambda: len(look(cluster).ready) == 2, "a broken node", seconds=30)
            time.sleep(8)
        (broken,) = set(rollout.order(cluster))
        assert look(cluster).ready.items() < before.ready.items()
        on = holders_of(cluster, *vips)
        assert all(len(nodes) == 1 and broken not in nodes for nodes in on.values())
        done = install()
        assert f"{broken} runs the current agent" in done.stdout

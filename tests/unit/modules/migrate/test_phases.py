# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The steps of a migration, cut off at each of their writes and run again."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from purelb.module.errors import ClusterError
from tests.support.v1.cluster import NEAR, KilledError, NodeSnapshot, obj

THERE = ("status", "preview", "back_up", "hand_over", "verify", "remove_v1", "finish")
BACK = ("roll_back", "discard")


@pytest.fixture
def worlds(new_cluster: Any, tmp_path: Path) -> Iterator[Any]:
    """Makes worlds, each with a folder of its own."""
    made: list[NodeSnapshot] = []

    def make() -> NodeSnapshot:
        made.append(NodeSnapshot(new_cluster(), tmp_path / str(len(made))))
        return made[-1]

    yield make
    assert [world.served_by_both for world in made if world.served_by_both] == []


def is_migrated(world: NodeSnapshot) -> None:
    stored = world.cluster.stored
    for name, number in (("web", 200), ("shop", 201), ("named", 202)):
        one = stored["services", "default", name]
        shown = [entry["ip"] for entry in one["status"]["loadBalancer"]["ingress"]]
        assert shown == [f"10.0.0.{number}", f"fd00::{number}"]
        assert one["spec"]["type"] == "LoadBalancer"
        assert (
            not {"purelb.io/migration", "purelb.io/addresses"}
            & one["metadata"]["annotations"].keys()
        )
    assert stored["services", "default", "web"]["spec"]["externalTrafficPolicy"] == "Local"
    named = stored["services", "default", "named"]
    assert named["spec"]["loadBalancerClass"] == "purelb.io/purelbv2"
    assert ("deployments", "purelb", "allocator") not in stored
    assert ("daemonsets", "purelb", "lbnodeagent") not in stored
    assert ("servicegroups", "purelb", "default") not in stored
    assert "local" in stored["servicegroups", "purelb-system", "default"]["spec"]
    for plural in ("servicegroups", "lbnodeagents"):
        crd = stored["customresourcedefinitions", None, f"{plural}.purelb.io"]
        assert crd["status"]["storedVersions"] == ["v2"]
    assert stored["configmaps", "purelb", "purelb-migration"]["data"]["phase"] == "done"


def is_back(world: NodeSnapshot) -> None:
    stored = world.cluster.stored
    ours = ("deployments", "daemonsets", "servicegroups", "lbnodeagents")
    for key in [k for k in stored if k[1] == "purelb-system" and k[0] in ours]:
        pytest.fail(f"{key} is left")
    assert world.content() == world.before
    assert ("configmaps", "purelb", "purelb-migration") not in stored


def killed_at_each_write(
    worlds: Any, done: tuple[str, ...], steps: tuple[str, ...], **params: Any
) -> Iterator[tuple[NodeSnapshot, int | None]]:
    """Worlds in which a run of some steps ended at its first write, its second, and so on.

    With each comes the number of its writes; None for the last, in which the run came through.
    """
    for writes in count():
        world = worlds()
        world.run(*done, **params)
        world.writes_left = writes
        is_killed = False
        try:
            world.run(*steps, **params)
        except KilledError:
            is_killed = True
        world.writes_left = None
        yield world, writes if is_killed else None
        if not is_killed:
            return


WAYS = pytest.mark.parametrize("one_by_one", [False, True], ids=["all at once", "one by one"])


@WAYS
def test_a_run_that_is_killed_at_any_write_is_gone_on_with(worlds: Any, one_by_one: object):
    kills = 0
    for world, writes in killed_at_each_write(worlds, (), THERE, one_by_one=one_by_one):
        if writes is not None:
            world.run(*THERE, one_by_one=one_by_one)
            kills += 1
        is_migrated(world)
    assert kills > 10


@WAYS
def test_a_rollback_that_is_killed_at_any_write_is_gone_on_with(worlds: Any, one_by_one: object):
    kills = 0
    for world, writes in killed_at_each_write(worlds, THERE[:5], BACK, one_by_one=one_by_one):
        if writes is not None:
            world.run(*BACK)
            kills += 1
        is_back(world)
    assert kills > 10


@WAYS
def test_a_run_that_is_killed_at_any_write_can_be_taken_back(worlds: Any, one_by_one: object):
    kills = 0
    for world, writes in killed_at_each_write(worlds, THERE[:3], THERE[3:5], one_by_one=one_by_one):
        world.run(*BACK)
        is_back(world)
        kills += writes is not None
    assert kills > 5


def test_a_step_that_is_done_changes_nothing(worlds: Any):
    world = worlds()
    world.run(*THERE[:5])
    again = world.run(*THERE[:5])
    assert [one["changed"] for one in again] == [False] * 5
    world.run(*THERE[5:])
    assert [one["changed"] for one in world.run(*THERE)] == [False] * 7


@pytest.mark.parametrize(
    ("done", "step", "text"),
    [
        ((), "hand_over", "is at its beginning, and this step comes after backedUp"),
        (THERE[:3], "verify", "is at backedUp, and this step comes after handedOver"),
        (THERE[:4], "remove_v1", "is at handedOver, and this step comes after verified"),
        (THERE[:4], "discard", "is at handedOver: only one taken back is forgotten"),
        ((), "roll_back", "no migration"),
        (THERE, "roll_back", "v1 is removed"),
    ],
)
def test_a_step_that_comes_too_early_or_late_is_refused(
    worlds: Any, done: Any, step: str, text: str
):
    world = worlds()
    world.run(*done)
    with pytest.raises(ClusterError, match=text):
        world.run(step)


def test_nothing_is_begun_without_v1_or_without_a_file(worlds: Any):
    world = worlds()
    with pytest.raises(ClusterError, match="backup: give the file to write"):
        world.run("back_up", backup=None)
    del world.cluster.stored["daemonsets", "purelb", "lbnodeagent"]
    with pytest.raises(ClusterError, match="no DaemonSet purelb/lbnodeagent: give namespace"):
        world.run("back_up")
    assert world.cluster.writes == []


def test_what_is_to_be_decided_stops_it(worlds: Any):
    world = worlds()
    far = {"v4pool": {"pool": "10.7.0.0/28", "subnet": "10.7.0.0/24"}}
    both = {"v4pool": NEAR, "v6pool": {"pool": "fd07::/124", "subnet": "fd07::/64"}}
    world.put(obj("ServiceGroup", "mixed", spec={"local": both}))
    world.put(obj("ServiceGroup", "far", spec={"local": far}))
    (preview,) = world.run("preview")
    assert preview["failed"]
    assert "ServiceGroup purelb/mixed" in preview["msg"]
    with pytest.raises(ClusterError, match="comes after preview"):
        world.run("back_up")
    (accepted,) = world.run("preview", accept=True)
    assert "failed" not in accepted
    world.put(obj("ServiceGroup", "bad", spec={"local": {"v4pool": {"pool": "x"}}}))
    (preview,) = world.run("preview", accept=True)
    assert "ServiceGroup purelb/bad" in preview["msg"]
    assert world.cluster.writes == []


def test_chosen_services_go_first_and_the_others_stay_with_v1(worlds: Any):
    world = worlds()
    world.run(*THERE[:3])
    (handed,) = world.run("hand_over", services=["default/web"])
    assert handed["remaining"] == ["default/shop"]
    assert handed["phase"] == "backedUp"
    assert world.v1_agents_run()
    world.run(*THERE[3:])
    is_migrated(world)


def test_a_service_that_is_not_there_is_named(worlds: Any):
    world = worlds()
    world.run(*THERE[:3])
    with pytest.raises(ClusterError, match="there is no Service default/typo: write namespace/na"):
        world.run("hand_over", services=["default/typo"])


def test_addresses_that_changed_are_named(worlds: Any):
    world = worlds()
    world.run(*THERE[:4])
    web = world.cluster.stored["services", "default", "web"]
    web["status"]["loadBalancer"]["ingress"][0]["ip"] = "10.0.0.209"
    world.react(web)
    with pytest.raises(ClusterError, match="other addresses than before: Service default/web"):
        world.run("verify")


def test_what_somebody_else_changed_is_named_after_the_way_back(worlds: Any):
    world = worlds()
    world.run(*THERE[:5])
    world.run("roll_back")
    shop = world.cluster.stored["services", "default", "shop"]
    shop["metadata"]["annotations"]["purelb.io/allocated-from"] = "other"
    with pytest.raises(ClusterError, match="not as before: Service default/shop"):
        world.run("discard")


def test_a_dry_run_begins_nothing(worlds: Any):
    world = worlds()
    results = world.run("status", "preview", "back_up", check_mode=True)
    assert [one["changed"] for one in results] == [False, False, True]
    assert world.cluster.writes == []
    assert not world.path.exists()


@pytest.mark.parametrize(
    ("done", "step"),
    [(3, "hand_over"), (4, "verify"), (5, "remove_v1"), (5, "finish"), (5, "roll_back")],
)
def test_a_dry_run_of_a_step_foretells_that_it_changes_something(worlds: Any, done: int, step: str):
    world = worlds()
    world.run(*THERE[:done], one_by_one=True)
    before, writes = deepcopy(world.content()), len(world.cluster.writes)
    (foretold,) = world.run(step, check_mode=True, one_by_one=True)
    assert foretold["changed"]
    assert len(world.cluster.writes) == writes
    if step != "hand_over":  # before which v2 is installed
        assert world.content() == before

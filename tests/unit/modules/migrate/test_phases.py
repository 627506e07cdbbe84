# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The steps of a migration, interrupted at each of their writes and run again."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from purelb.migrate.phases import STEPS
from purelb.module.errors import ClusterError
from tests.support.v1.cluster import NEAR, FakeMigrationCluster, KilledError, obj

FORWARD = ("status", "preview", "back_up", "hand_over", "verify", "remove_v1", "finish")
BACKWARD = ("roll_back", "discard")


@pytest.fixture
def fakes(new_cluster: Any, tmp_path: Path) -> Iterator[Any]:
    """Returns a function that makes clusters with v1, each with its own backup folder."""
    made: list[FakeMigrationCluster] = []

    def make() -> FakeMigrationCluster:
        made.append(FakeMigrationCluster(new_cluster(), tmp_path / str(len(made))))
        return made[-1]

    yield make
    assert [fake.served_by_both for fake in made if fake.served_by_both] == []


def assert_migrated(fake: FakeMigrationCluster) -> None:
    stored = fake.cluster.stored
    for name, number in (("web", 200), ("shop", 201), ("named", 202)):
        service = stored["services", "default", name]
        assigned = [entry["ip"] for entry in service["status"]["loadBalancer"]["ingress"]]
        assert assigned == [f"10.0.0.{number}", f"fd00::{number}"]
        assert service["spec"]["type"] == "LoadBalancer"
        assert (
            not {"purelb.io/migration", "purelb.io/addresses"}
            & service["metadata"]["annotations"].keys()
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


def assert_rolled_back(fake: FakeMigrationCluster) -> None:
    stored = fake.cluster.stored
    kinds = ("deployments", "daemonsets", "servicegroups", "lbnodeagents")
    for key in [k for k in stored if k[1] == "purelb-system" and k[0] in kinds]:
        pytest.fail(f"{key} is left")
    assert fake.content() == fake.before
    assert ("configmaps", "purelb", "purelb-migration") not in stored


def killed_at_each_write(
    fakes: Any, done: tuple[str, ...], steps: tuple[str, ...], **params: Any
) -> Iterator[tuple[FakeMigrationCluster, int | None]]:
    """Yields clusters in which a run of the steps was killed at its first write, its second, ...

    Each comes with the number of writes before; None for the last, in which the run completed.
    """
    for writes in count():
        fake = fakes()
        fake.run(*done, **params)
        fake.writes_left = writes
        is_killed = False
        try:
            fake.run(*steps, **params)
        except KilledError:
            is_killed = True
        fake.writes_left = None
        yield fake, writes if is_killed else None
        if not is_killed:
            return


WAYS = pytest.mark.parametrize("one_by_one", [False, True], ids=["all at once", "one by one"])


@WAYS
def test_a_migration_killed_at_any_write_can_be_continued(fakes: Any, one_by_one: object):
    kills = 0
    for fake, writes in killed_at_each_write(fakes, (), FORWARD, one_by_one=one_by_one):
        if writes is not None:
            fake.run(*FORWARD, one_by_one=one_by_one)
            kills += 1
        assert_migrated(fake)
    assert kills > 10


@WAYS
def test_a_rollback_killed_at_any_write_can_be_continued(fakes: Any, one_by_one: object):
    kills = 0
    for fake, writes in killed_at_each_write(fakes, FORWARD[:5], BACKWARD, one_by_one=one_by_one):
        if writes is not None:
            fake.run(*BACKWARD)
            kills += 1
        assert_rolled_back(fake)
    assert kills > 10


@WAYS
def test_a_migration_killed_at_any_write_can_be_rolled_back(fakes: Any, one_by_one: object):
    kills = 0
    for fake, writes in killed_at_each_write(
        fakes, FORWARD[:3], FORWARD[3:5], one_by_one=one_by_one
    ):
        fake.run(*BACKWARD)
        assert_rolled_back(fake)
        kills += writes is not None
    assert kills > 5


def test_a_completed_step_changes_nothing_when_repeated(fakes: Any):
    fake = fakes()
    fake.run(*FORWARD[:5])
    again = fake.run(*FORWARD[:5])
    assert [result["changed"] for result in again] == [False] * 5
    fake.run(*FORWARD[5:])
    assert [result["changed"] for result in fake.run(*FORWARD)] == [False] * 7


@pytest.mark.parametrize(
    ("done", "step", "text"),
    [
        ((), "hand_over", "is at its beginning, and hand_over comes after backedUp"),
        (FORWARD[:3], "verify", "is at backedUp, and verify comes after handedOver"),
        (FORWARD[:4], "remove_v1", "is at handedOver, and remove_v1 comes after verified"),
        (FORWARD[:4], "discard", "is at handedOver: discard ends a migration that was rolled back"),
        ((), "roll_back", "there is no migration to roll back"),
        (FORWARD, "roll_back", "v1 is removed"),
    ],
)
def test_a_step_in_the_wrong_phase_is_refused(fakes: Any, done: Any, step: str, text: str):
    fake = fakes()
    fake.run(*done)
    with pytest.raises(ClusterError, match=text):
        fake.run(step)


def test_back_up_needs_v1_and_a_file(fakes: Any):
    fake = fakes()
    with pytest.raises(ClusterError, match="backup: give the file to write"):
        fake.run("back_up", backup=None)
    del fake.cluster.stored["daemonsets", "purelb", "lbnodeagent"]
    with pytest.raises(ClusterError, match="no DaemonSet purelb/lbnodeagent: set namespace"):
        fake.run("back_up")
    assert fake.cluster.writes == []


def test_an_open_question_stops_preview_and_back_up(fakes: Any):
    fake = fakes()
    far = {"v4pool": {"pool": "10.7.0.0/28", "subnet": "10.7.0.0/24"}}
    both = {"v4pool": NEAR, "v6pool": {"pool": "fd07::/124", "subnet": "fd07::/64"}}
    fake.put(obj("ServiceGroup", "mixed", spec={"local": both}))
    fake.put(obj("ServiceGroup", "far", spec={"local": far}))
    (preview,) = fake.run("preview")
    assert preview["failed"]
    assert "ServiceGroup purelb/mixed" in preview["msg"]
    with pytest.raises(ClusterError, match="needs the decisions that preview lists"):
        fake.run("back_up")
    (accepted,) = fake.run("preview", accept=True)
    assert "failed" not in accepted
    fake.put(obj("ServiceGroup", "bad", spec={"local": {"v4pool": {"pool": "x"}}}))
    (preview,) = fake.run("preview", accept=True)
    assert "ServiceGroup purelb/bad" in preview["msg"]
    assert fake.cluster.writes == []


def test_who_writes_annotations_is_told_with_the_backup(fakes: Any):
    fake = fakes()
    writers = ["admin", "system:serviceaccount:purelb:default"]
    for _again in range(2):
        (told,) = fake.run("back_up")
        assert told["annotation_writers"] == writers


def test_chosen_services_move_first_and_the_others_stay_with_v1(fakes: Any):
    fake = fakes()
    fake.run(*FORWARD[:3])
    (result,) = fake.run("hand_over", services=["default/web"])
    assert result["remaining"] == ["default/shop"]
    assert result["phase"] == "backedUp"
    assert fake.v1_agents_run()
    fake.run(*FORWARD[3:])
    assert_migrated(fake)


def test_an_unknown_service_is_named(fakes: Any):
    fake = fakes()
    fake.run(*FORWARD[:3])
    with pytest.raises(ClusterError, match="there is no Service default/typo: write namespace/na"):
        fake.run("hand_over", services=["default/typo"])


def test_verify_names_services_whose_addresses_changed(fakes: Any):
    fake = fakes()
    fake.run(*FORWARD[:4])
    web = fake.cluster.stored["services", "default", "web"]
    web["status"]["loadBalancer"]["ingress"][0]["ip"] = "10.0.0.209"
    fake.react(web)
    with pytest.raises(ClusterError, match="other addresses than before: Service default/web"):
        fake.run("verify")


def test_discard_names_what_others_changed(fakes: Any):
    fake = fakes()
    fake.run(*FORWARD[:5])
    fake.run("roll_back")
    shop = fake.cluster.stored["services", "default", "shop"]
    shop["metadata"]["annotations"]["purelb.io/allocated-from"] = "other"
    with pytest.raises(ClusterError, match="not as before: Service default/shop"):
        fake.run("discard")


def test_check_mode_starts_no_migration(fakes: Any):
    fake = fakes()
    results = fake.run("status", "preview", "back_up", check_mode=True)
    assert [result["changed"] for result in results] == [False, False, True]
    assert fake.cluster.writes == []
    assert not fake.path.exists()


@pytest.mark.parametrize(
    ("done", "step"),
    [(3, "hand_over"), (4, "verify"), (5, "remove_v1"), (5, "finish"), (5, "roll_back")],
)
def test_check_mode_reports_a_change_and_writes_nothing(fakes: Any, done: int, step: str):
    fake = fakes()
    fake.run(*FORWARD[:done], one_by_one=True)
    before, writes = deepcopy(fake.content()), len(fake.cluster.writes)
    (predicted,) = fake.run(step, check_mode=True, one_by_one=True)
    assert predicted["changed"]
    assert len(fake.cluster.writes) == writes
    if step != "hand_over":  # v2 is installed before it
        assert fake.content() == before


def test_the_table_lists_every_step_once_and_each_phase_of_a_step_once():
    assert sorted(step.name for step in STEPS) == sorted((*FORWARD, *BACKWARD))
    for step in STEPS:
        assert not set(step.runs_in) & set(step.done_in), step.name
        assert not set(step.refusals) & {*step.runs_in, *step.done_in}, step.name

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The migration from v1 to v2 and back, also when a run is killed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from labkit.probe.addresses import nodes_with
from labkit.probe.prober import Prober
from tests.support import ROOT
from tests.support.lab import commands
from tests.support.lab.address_recorder import record_holders
from tests.support.lab.cluster_queries import (
    IMAGE,
    answers,
    eventually,
    ingress,
    lease_info,
)
from tests.support.v1 import v1_install
from tests.support.v1.v1_install import FAR, NEAR, SHOP, WEB

pytestmark = [pytest.mark.timeout(900), pytest.mark.safety]
SPLIT = {"v4pool": NEAR["v4pool"] | {"pool": "172.28.1.240/29"}, "v6pool": FAR["v6pool"]}
SPLIT["v6pool"] = {**SPLIT["v6pool"], "pool": "fd28:100:9::100/124"}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APPS = "/apis/apps/v1/namespaces/purelb"
MARK = "/api/v1/namespaces/purelb/configmaps/purelb-migration"
GROUPS = "/apis/purelb.io/{}/namespaces/{}/servicegroups"
# Seconds that two nodes may have an address: only the delay of the kernels' notifications.
ON_TWO = 0.3
NOISE = (
    "annotations",
    "resourceVersion",
    "generation",
    "managedFields",
    "uid",
    "creationTimestamp",
)
COUNTERS = ("deprecated.daemonset.template.generation", "deployment.kubernetes.io/revision")


@pytest.fixture(scope="module")
def first(lab_without_purelb):
    """A v1 that serves two Services; returns their paths.

    Each test except the last leaves it unchanged.
    """
    services = v1_install.provide(lab_without_purelb, IMAGE)
    eventually(
        lambda: all(answers(lab_without_purelb, vip) for vip in WEB + SHOP),
        "v1 service",
        seconds=60,
    )
    yield services
    v1_install.remove(lab_without_purelb)


def variables(folder, *more):
    given = [f"purelb_install_image={IMAGE}", f"purelb_migrate_backup_dir={folder}", *more]
    return [part for text in given for part in ([text] if text.startswith("--") else ["-e", text])]


@pytest.fixture
def migrate(playbook, tmp_path):
    def run(*more, check=True):
        arguments = variables(tmp_path / "backup", *more)
        # The role itself lets its user and v1 write the programs' annotations.
        no_writers = '{"purelb_install_annotation_writers": []}'
        return playbook("purelb.purelb.migrate", "-e", no_writers, *arguments, check=check)

    return run


def annotations_of(body):
    return body["metadata"].get("annotations", {})


def state(lab, services):
    """Return everything that a rollback has to restore."""
    lists = [GROUPS.format("v1", "purelb"), GROUPS.format("v1", "purelb")[:-13] + "lbnodeagents"]
    paths = [f"{APPS}/deployments/allocator", f"{APPS}/daemonsets/lbnodeagent", *services]
    paths += [f"{CRDS}/{name}.purelb.io" for name in ("servicegroups", "lbnodeagents")]
    found = [lab.api.get(path) for path in paths]
    found += [body for path in lists for body in lab.api.items(path)]
    return [
        {
            "metadata": {k: v for k, v in body["metadata"].items() if k not in NOISE},
            "annotations": {k: v for k, v in annotations_of(body).items() if k not in COUNTERS},
            "spec": body["spec"],
            "status": body.get("status", {}).get("loadBalancer"),
            "uid": body["metadata"]["uid"],
            "stored": body.get("status", {}).get("storedVersions"),
        }
        for body in found
    ]


def errors(lab):
    found = lease_info(lab.kubeconfig)["findings"]
    return [finding for finding in found if finding["severity"] == "error"]


def is_served(lab, services):
    """Assert that v2 serves all Services at their earlier addresses."""
    for path, addresses in zip(services, (WEB, SHOP), strict=True):
        service = lab.api.get(path)
        assert ingress(service) == addresses
        assert service["metadata"]["annotations"]["purelb.io/pool-type"] == "local"
    assert errors(lab) == []
    assert all(len(nodes_with(lab, vip)) == 1 for vip in WEB + SHOP)
    eventually(lambda: all(answers(lab, vip) for vip in WEB + SHOP), "service", seconds=20)


def is_migrated(lab):
    """Assert that nothing of v1 is left."""
    groups = lab.api.items(GROUPS.format("v2", "purelb-system"))
    assert {g["metadata"]["name"]: list(g["spec"])[-1] for g in groups}.keys() == {"default", "far"}
    assert "remote" in next(g["spec"] for g in groups if g["metadata"]["name"] == "far")
    for plural in ("servicegroups", "lbnodeagents"):
        crd = lab.api.get(f"{CRDS}/{plural}.purelb.io")
        assert crd["status"]["storedVersions"] == ["v2"]
        assert crd["spec"]["conversion"] == {"strategy": "None"}
    assert not lab.api.exists(f"{APPS}/deployments/allocator")
    assert not lab.api.exists(f"{APPS}/daemonsets/lbnodeagent")
    assert lab.api.get(MARK)["data"]["phase"] == "done"


def gaps(prober, since):
    parts = (f"{vip} {prober.longest_gap(vip, since=since):.1f} s" for vip in WEB + SHOP)
    return ", ".join(parts)


def is_as_before(lab, services, before):
    """Assert that v1 is restored and nothing of v2 is left."""
    assert state(lab, services) == before
    assert not lab.api.exists(MARK)
    assert not lab.api.exists("/api/v1/namespaces/purelb-system")
    eventually(lambda: all(answers(lab, vip) for vip in WEB + SHOP), "v1 service", seconds=20)
    assert all(nodes_with(lab, vip) == {"n1"} for vip in WEB + SHOP)


def cut_off(lab, folder, task, *more):
    """Run the playbook and kill it, with all its processes, as soon as a task has started."""
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    environ = {**os.environ, "KUBECONFIG": str(lab.kubeconfig), "ANSIBLE_NOCOLOR": "1"}
    argv = [program, "purelb.purelb.migrate", *variables(folder, *more)]
    with commands.start(argv, cwd=ROOT, env=environ, stderr=subprocess.STDOUT) as process:
        seen = []
        for line in process.stdout:
            seen.append(line)
            if line.startswith("TASK") and task in line:
                time.sleep(0.7)
                commands.end(process)
                return
    pytest.fail(f"no task {task!r} in:\n" + "".join(seen))


@pytest.mark.thorough
def test_preview_lists_conversions_and_stops_until_all_is_decided(
    lab_without_purelb, first, migrate
):
    group = v1_install.v1_object("ServiceGroup", "split", {"local": SPLIT})
    path = lab_without_purelb.api.path_of(lab_without_purelb.api.create(group))
    before = state(lab_without_purelb, first)
    done = migrate(check=False)
    assert done.returncode != 0
    assert "Nothing is changed" in done.stdout
    assert "ServiceGroup purelb/split" in done.stdout
    assert "Back up the v1 installation" not in done.stdout
    is_as_before(lab_without_purelb, first, before)
    dry = migrate("purelb_migrate_accept=true", "--check")
    assert "outsideNodeSubnets" in dry.stdout or "hostRoute" in dry.stdout
    assert "changed=0" in dry.stdout
    is_as_before(lab_without_purelb, first, before)
    lab_without_purelb.api.delete(path)


@pytest.mark.thorough
def test_failure_leaves_everything_unchanged(lab_without_purelb, first, migrate):
    before = state(lab_without_purelb, first)
    wrong = "purelb_install_image=localhost/none:1"
    timeout = "purelb_install_wait_timeout=15"
    done = migrate(wrong, timeout, "purelb_install_image_pull_policy=Never", check=False)
    assert done.returncode != 0
    assert "The migration failed and was rolled back." in done.stdout, done.stdout
    is_as_before(lab_without_purelb, first, before)


@pytest.mark.thorough
def test_services_migrate_one_by_one_and_back(lab_without_purelb, first, migrate, figure):
    before = state(lab_without_purelb, first)
    web, shop = first
    keep = "purelb_migrate_remove_v1=false"
    with (
        Prober(lab_without_purelb, *WEB, *SHOP) as prober,
        record_holders(lab_without_purelb, *WEB, *SHOP) as holders,
    ):
        start = time.monotonic()
        done = migrate(keep, '{"purelb_migrate_services": ["default/old-web"]}')
        assert "v1 still serves default/old-shop." in done.stdout
        assert lab_without_purelb.api.get(web)["spec"]["loadBalancerClass"] == "purelb.io/purelbv2"
        # v1 still serves the other one.
        assert all(holders.sequence(vip) == [{"n1"}] for vip in SHOP)
        assert all(len(nodes_with(lab_without_purelb, vip)) == 1 for vip in WEB)
        migrate(keep, "purelb_migrate_one_by_one=true")
        is_served(lab_without_purelb, first)
        assert all(holders.longest_doubled(vip) < ON_TWO for vip in WEB + SHOP)
        figure(f"no answer while migrating one by one: {gaps(prober, start)}")
        back = time.monotonic()
        migrate("purelb_migrate_state=rolled_back")
        for vip in WEB + SHOP:
            prober.wait_for_answer(vip, after=time.monotonic(), seconds=30)
        figure(f"no answer during the rollback: {gaps(prober, back)}")
    assert "migration" not in str(lab_without_purelb.api.get(shop)["metadata"]["annotations"])
    is_as_before(lab_without_purelb, first, before)


# The tasks at which successive runs are killed.
THERE = [
    "Back up the v1 installation",
    "Apply the namespace, the permissions and the admission policies",
    "Apply the allocator",
    "Apply the node agents",
    "Hand the Services over to v2",
    "Let v2 serve every Service",
    "Verify the result",
]
BACK = ["Restore v1", "Remove the programs and wait until their Pods are gone"]


@pytest.mark.thorough
def test_killed_run_is_continued_by_the_next(lab_without_purelb, first, migrate, tmp_path):
    before = state(lab_without_purelb, first)
    for task in THERE:
        cut_off(lab_without_purelb, tmp_path / "backup", task)
    migrate("purelb_migrate_remove_v1=false")
    is_served(lab_without_purelb, first)
    for task in BACK:
        cut_off(lab_without_purelb, tmp_path / "backup", task, "purelb_migrate_state=rolled_back")
    done = migrate(check=False)
    assert "An earlier rollback to v1 was interrupted. It is complete now." in done.stdout
    is_as_before(lab_without_purelb, first, before)


def test_services_keep_their_addresses(lab_without_purelb, first, migrate, figure):
    with (
        Prober(lab_without_purelb, *WEB, *SHOP) as prober,
        record_holders(lab_without_purelb, *WEB, *SHOP) as holders,
    ):
        start = time.monotonic()
        migrate()
        for vip in WEB + SHOP:
            prober.wait_for_answer(vip, after=time.monotonic(), seconds=30)
        figure(f"no answer while migrating all at once: {gaps(prober, start)}")
        for vip in WEB + SHOP:
            assert prober.longest_gap(vip, since=start) < 20
            # An agent that restarts for changed settings hands its addresses over.
            assert holders.longest_doubled(vip) < ON_TWO
    is_served(lab_without_purelb, first)
    is_migrated(lab_without_purelb)
    again = migrate()
    assert "changed=0" in again.stdout
    assert "The migration is complete." in again.stdout
    refused = migrate("purelb_migrate_state=rolled_back", check=False)
    assert "v1 is removed" in refused.stdout

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""From a PureLB of the first generation to this one and back, also when a run is cut off."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import firstgeneration
import pytest

from conftest import ARCHIVE, IMAGE, ROOT, provide, provide_web
from labkit.prober import Prober
from watching import answers, eventually, ingress, lease_info

pytestmark = pytest.mark.timeout(900)
WEB = ["172.28.1.225", "fd28:0:0:1::225"]
SHOP = ["172.28.1.226", "fd28:0:0:1::226"]
NEAR = {
    "v4pool": {"pool": "172.28.1.220-172.28.1.239", "subnet": "172.28.1.0/24"},
    "v6pool": {"pool": "fd28:0:0:1::220-fd28:0:0:1::239", "subnet": "fd28:0:0:1::/64"},
}
FAR = {
    "v4pool": {"pool": "10.100.9.0/28", "subnet": "10.100.9.0/24", "aggregation": "/32"},
    "v6pool": {"pool": "fd28:100:9::/124", "subnet": "fd28:100:9::/64", "aggregation": "/128"},
}
SPLIT = {"v4pool": NEAR["v4pool"] | {"pool": "172.28.1.240/29"}, "v6pool": FAR["v6pool"]}
SPLIT["v6pool"] = {**SPLIT["v6pool"], "pool": "fd28:100:9::100/124"}
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APPS = "/apis/apps/v1/namespaces/purelb"
MARK = "/api/v1/namespaces/purelb/configmaps/purelb-migration"
GROUPS = "/apis/purelb.io/{}/namespaces/{}/servicegroups"
NOISE = ("resourceVersion", "generation", "managedFields", "uid", "creationTimestamp")


@pytest.fixture(scope="module")
def place(lab, playbook):
    """The lab without PureLB; with it again after the tests."""
    lab.load_image(ARCHIVE)
    remove_all(lab, playbook)
    provide_web(lab)
    yield lab
    remove_all(lab, playbook)
    provide(lab)


def remove_all(lab, playbook):
    gone = ("-e", "purelb_install_state=absent", "-e", "purelb_install_remove_crds=true")
    playbook("purelb.purelb.install", *gone)
    for name in ("servicegroups", "lbnodeagents"):
        lab.api.delete(f"{CRDS}/{name}.purelb.io")
    lab.api.delete("/api/v1/namespaces/purelb")
    lab.api.wait("/api/v1/namespaces/purelb", lambda n: n is None, seconds=60)
    lab.api.wait("/api/v1/namespaces/purelb-system", lambda n: n is None, seconds=60)


@pytest.fixture
def first(place, playbook):
    """A first generation that serves two Services; the paths of these."""
    api = place.api
    for definition in firstgeneration.DEFINITIONS:
        path = api.path_of(api.apply(definition))
        api.wait(path, lambda d: d and "conditions" in d.get("status", {}))
    privileged = {"pod-security.kubernetes.io/enforce": "privileged"}
    meta = {"name": firstgeneration.NAMESPACE, "labels": privileged}
    api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": meta})
    for name, local in (("default", NEAR), ("far", FAR)):
        group = firstgeneration.old("ServiceGroup", name, {"local": local})
        eventually(partial(made, api, group), "group", seconds=10)
    agent = firstgeneration.old("LBNodeAgent", "default", {"local": {"sendgarp": True}})
    eventually(partial(made, api, agent), "agent", seconds=10)
    for program in firstgeneration.programs(IMAGE, "n1", WEB + SHOP):
        api.create(program)
    services = [
        firstgeneration.provide_service(place, firstgeneration.allocated("old-web", WEB)),
        firstgeneration.provide_service(
            place,
            firstgeneration.allocated("old-shop", SHOP, **{"purelb.io/service-group": "default"}),
        ),
    ]
    eventually(lambda: all(answers(place, vip) for vip in WEB + SHOP), "v1 service", seconds=60)
    yield services
    for path in services:
        api.delete(path)
    remove_all(place, playbook)


def made(api, thing):
    """Whether an object could be created: a moment after its definition."""
    try:
        return api.create(thing)
    except Exception as error:
        if "404" in str(error):
            return None
        raise


def variables(folder, *more):
    given = [f"purelb_install_image={IMAGE}", f"purelb_migrate_backup_dir={folder}", *more]
    return [part for one in given for part in ("-e", one)]


@pytest.fixture
def migrate(playbook, tmp_path):
    def run(*more, check=True):
        arguments = variables(tmp_path / "backup", *more)
        return playbook("purelb.purelb.migrate", *arguments, check=check)

    return run


def state(lab, services):
    """All that a rollback has to bring back, but for bookkeeping."""
    lists = [GROUPS.format("v1", "purelb"), GROUPS.format("v1", "purelb")[:-13] + "lbnodeagents"]
    paths = [f"{APPS}/deployments/allocator", f"{APPS}/daemonsets/lbnodeagent", *services]
    paths += [f"{CRDS}/{name}.purelb.io" for name in ("servicegroups", "lbnodeagents")]
    found = [lab.api.get(path) for path in paths]
    found += [one for path in lists for one in lab.api.items(path)]
    return [
        {
            "metadata": {k: v for k, v in one["metadata"].items() if k not in NOISE},
            "spec": one["spec"],
            "status": one.get("status", {}).get("loadBalancer"),
            "uid": one["metadata"]["uid"],
            "stored": one.get("status", {}).get("storedVersions"),
        }
        for one in found
    ]


def errors(lab):
    found = lease_info(lab.kubeconfig)["findings"]
    return [one for one in found if one["severity"] == "error"]


def is_migrated(lab, services):
    for path, addresses in zip(services, (WEB, SHOP), strict=True):
        service = lab.api.get(path)
        assert ingress(service) == addresses
        assert service["metadata"]["annotations"]["purelb.io/pool-type"] == "local"
    assert errors(lab) == []
    assert all(len(lab.holders(vip)) == 1 for vip in WEB + SHOP)
    eventually(lambda: all(answers(lab, vip) for vip in WEB + SHOP), "service", seconds=20)
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


def test_services_keep_their_addresses(place, first, migrate, figure):
    with Prober(place, *WEB, *SHOP) as prober:
        start = time.monotonic()
        migrate()
        for vip in WEB + SHOP:
            prober.wait_for_answer(vip, after=time.monotonic(), seconds=30)
        figure(f"no answer while migrating: {gaps(prober, start)}")
        for vip in WEB + SHOP:
            assert prober.longest_gap(vip, since=start) < 30
    is_migrated(place, first)
    again = migrate()
    assert "changed=0" in again.stdout
    assert "All of it is migrated." in again.stdout
    refused = migrate("purelb_migrate_state=rolled_back", check=False)
    assert "there is no way back" in refused.stdout


def test_all_of_it_can_be_taken_back(place, first, migrate, figure):
    before = state(place, first)
    migrate("purelb_migrate_remove_v1=false")
    assert place.api.get(MARK)["data"]["phase"] == "verified"
    with Prober(place, *WEB, *SHOP) as prober:
        start = time.monotonic()
        migrate("purelb_migrate_state=rolled_back")
        for vip in WEB + SHOP:
            prober.wait_for_answer(vip, after=time.monotonic(), seconds=30)
        figure(f"no answer while going back: {gaps(prober, start)}")
    assert state(place, first) == before
    assert not place.api.exists(MARK)
    assert not place.api.exists("/apis/apps/v1/namespaces/purelb-system/daemonsets/lbnodeagent")


def test_a_failure_leaves_all_as_it_was(place, first, migrate):
    before = state(place, first)
    wrong = "purelb_install_image=localhost/none:1"
    timeout = "purelb_install_wait_timeout=5"
    done = migrate(wrong, timeout, "purelb_install_image_pull_policy=Never", check=False)
    assert done.returncode != 0
    assert "Everything is as it was before." in done.stdout
    assert state(place, first) == before
    assert all(answers(place, vip) for vip in WEB + SHOP)
    assert not place.api.exists(MARK)


def test_it_stops_until_all_is_decided(place, first, migrate):
    group = firstgeneration.old("ServiceGroup", "split", {"local": SPLIT})
    place.api.create(group)
    before = state(place, first)
    done = migrate(check=False)
    assert done.returncode != 0
    assert "ServiceGroup purelb/split" in done.stdout
    assert "Nothing is changed yet" in done.stdout
    assert state(place, first) == before


def cut_off(lab, folder, task, *more):
    """Run the playbook and kill it, with all its processes, as soon as a task has begun."""
    program = str(Path(sys.executable).with_name("ansible-playbook"))
    environ = {**os.environ, "KUBECONFIG": str(lab.kubeconfig), "ANSIBLE_NOCOLOR": "1"}
    with subprocess.Popen(
        [program, "purelb.purelb.migrate", *variables(folder, *more)],
        cwd=ROOT, env=environ, text=True, stdout=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        seen = []
        for line in process.stdout:
            seen.append(line)
            if line.startswith("TASK") and task in line:
                time.sleep(0.7)
                os.killpg(process.pid, signal.SIGKILL)
                return
    pytest.fail(f"no task {task!r} in:\n" + "".join(seen))


THERE = [
    "Write the backup",
    "Apply the CustomResourceDefinitions",
    "Apply the programs and their permissions",
    "Remember in the cluster: prepared",
    "Stop the v1 allocator",
    "Stop the v1 agents",
    "Write the v2 objects",
    "Let the v2 agents start",
    "Remember in the cluster: handedOver",
    "Apply the programs and their permissions",
    "Wait until every address is where it should be",
    "Remove the programs and objects of v1",
    "Note that nothing is stored as v1 any more",
    "Remember in the cluster: done",
]
BACK = [
    "Remove the programs of v2",
    "Store v1 again",
    "Remove those of v2",
    "Have all others stored as v1",
    "Bring back the definitions",
    "Bring back the objects of v1",
    "Bring back what Services had of v1",
    "Start v1",
    "Remove the rest of v2",
    "Compare with the backup",
]


def test_a_run_that_is_cut_off_anywhere_is_gone_on_with(place, first, migrate, tmp_path):
    for task in THERE:
        cut_off(place, tmp_path / "backup", task)
    migrate()
    is_migrated(place, first)


def test_a_rollback_that_is_cut_off_anywhere_is_gone_on_with(place, first, migrate, tmp_path):
    before = state(place, first)
    migrate("purelb_migrate_remove_v1=false")
    for task in BACK:
        cut_off(place, tmp_path / "backup", task, "purelb_migrate_state=rolled_back")
    migrate("purelb_migrate_state=rolled_back")
    assert state(place, first) == before
    eventually(lambda: all(answers(place, vip) for vip in WEB + SHOP), "v1 service", seconds=20)

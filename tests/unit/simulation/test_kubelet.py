# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""When containers are started again, and what goes with a Node."""

from __future__ import annotations

from itertools import pairwise

import pytest

from simulation.api.objects import Key
from simulation.api.server import ApiServer
from simulation.collector import Collector
from simulation.kubelet import Kubelet
from simulation.time.process import Process
from simulation.time.timeline import MICROSECONDS

NODES, LEASES = "/api/v1/nodes", "/apis/coordination.k8s.io/v1/leases"


class Pod:
    """A Pod whose container is started at moments that it keeps; each runs for `seconds`."""

    def __init__(self, timeline, machine, seconds, error=None):
        self.timeline, self.machine, self.seconds, self.error = timeline, machine, seconds, error
        self.started, self.made = [], []
        self.kubelet = Kubelet(timeline, self.start)
        self.kubelet.begin_pod()

    async def work(self):
        if self.error:
            raise self.error

    def start(self):
        self.started.append(self.timeline.now / MICROSECONDS)
        container = Process(self.machine, "agent")
        self.made.append(container)
        self.kubelet.container_began(container)
        self.timeline.after(self.seconds, lambda: container.start(self.work()))

    def run(self, seconds):
        self.start()
        self.timeline.run(self.timeline.now + int(seconds * MICROSECONDS))
        for container in self.made:
            container.close()
        return [after - before for before, after in pairwise(self.started)]


@pytest.mark.parametrize("error", [None, RuntimeError("it fails")])
def test_a_container_that_ends_again_and_again_is_started_ever_later(timeline, machine, error):
    pod = Pod(timeline, machine, 4, error)
    pod.kubelet.is_on = True
    pauses = pod.run(1500)
    assert pauses[:8] == [pytest.approx(5 + s) for s in (0, 10, 20, 40, 80, 160, 300, 300)]
    assert pod.kubelet.ended[:8] == pod.made[:8]
    assert all(container.error is error for container in pod.made[:8])


def test_one_that_has_run_for_long_is_started_at_once_again(timeline, machine):
    pod = Pod(timeline, machine, 4)
    pod.kubelet.is_on = True
    timeline.after(40, lambda: setattr(pod, "seconds", 700))
    timeline.after(50, lambda: setattr(pod, "seconds", 4))
    assert pod.run(780) == [pytest.approx(s) for s in (5, 15, 25, 701, 15)]


@pytest.mark.parametrize("is_on", [False, True])
def test_nothing_is_started_in_a_pod_that_is_to_end(timeline, machine, is_on):
    pod = Pod(timeline, machine, 4)
    pod.kubelet.is_on = is_on
    timeline.after(4.5, pod.kubelet.end_pod)
    assert pod.run(100) == []
    assert len(pod.kubelet.ended) == is_on


def test_containers_of_a_pod_have_names_of_their_own(timeline, machine):
    pod = Pod(timeline, machine, 4)
    pod.kubelet.is_on = True
    assert pod.kubelet.again() == ()
    pod.run(8)
    assert pod.kubelet.again() == ("2",)
    pod.kubelet.begin_pod()
    assert pod.kubelet.again() == ()


def test_a_lease_goes_some_seconds_after_its_node_also_if_that_is_created_again(timeline):
    api = ApiServer()
    Collector(timeline, api, lambda: 3.0, owned=LEASES).follow(NODES)
    for name, uid in (("own", "u1"), ("other", "u2"), ("free", "")):
        owners = [{"kind": "Node", "uid": uid}] if uid else []
        metadata = {"name": name, "uid": name, "ownerReferences": owners}
        api.objects.put(Key(LEASES, "purelb-system", name), {"metadata": metadata})
    node = Key(NODES, "", "n1")
    api.objects.put(node, {"metadata": {"name": "n1", "uid": "u1"}})
    api.objects.drop(node)
    api.objects.put(node, {"metadata": {"name": "n1", "uid": "u3"}})
    timeline.run(2 * MICROSECONDS)
    assert len(list(api.objects.of_kind(LEASES, ""))) == 3
    timeline.run(4 * MICROSECONDS)
    assert [stored.key.name for stored in api.objects.of_kind(LEASES, "")] == ["free", "other"]

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The task that writes the status of ServiceGroups, while they change under its hands."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry

from purelb_agent.allocator.group_status import GroupStatus
from purelb_agent.allocator.metrics import AllocatorMetrics


class SlowKube:
    """Takes a write when it is let go on, and answers with what was written."""

    def __init__(self):
        self.written, self.goes_on, self.asked = [], asyncio.Event(), asyncio.Event()

    async def request(self, _method, path, body):
        self.written.append(path.split("/")[-2])
        self.asked.set()
        await self.goes_on.wait()
        return body


async def test_a_group_that_is_gone_while_another_is_written_is_passed_over():
    kube = SlowKube()
    metrics = AllocatorMetrics(CollectorRegistry())
    status = GroupStatus(kube, metrics, namespace="purelb-system")
    for name in ("one", "other", "third"):
        status.learn(name, {})
        status.want(name, {"ipam": "Cluster"})
    task = asyncio.create_task(status.run())
    await kube.asked.wait()
    status.learn("other", None)
    kube.goes_on.set()
    await asyncio.sleep(0.05)
    assert not task.done()
    assert kube.written == ["one", "third"]
    task.cancel()

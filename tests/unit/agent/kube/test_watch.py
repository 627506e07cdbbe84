# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A watcher with an API that answers as it is told to."""

from __future__ import annotations

import asyncio

import pytest

from purelb_agent.kube.client import ApiError
from purelb_agent.kube.watch import Watcher
from purelb_agent.runtime import clock


class Api:
    """Ends the first watches with a status, after a while; the others stay open."""

    def __init__(self, status, *, refusals, seconds=0.0):
        self.lists = []
        self._status, self._refusals, self._seconds = status, refusals, seconds

    async def request(self, _method, _path, *, params):
        self.lists.append(clock.now())
        return {"items": [], "metadata": {"resourceVersion": str(len(self.lists))}}

    async def watch(self, path, _params, *, on_open):
        if self._refusals:
            self._refusals -= 1
            await asyncio.sleep(self._seconds)
            raise ApiError(self._status, f"{path}: refused")
        on_open()
        await asyncio.Event().wait()
        yield {}


class Sink:
    """Takes whatever comes."""

    def replace(self, items, *, asked_at):
        pass


async def listed(api, *, seconds):
    """When the lists were asked for, from the first one on."""
    watching = asyncio.create_task(Watcher(api, "/things", Sink()).run())
    await asyncio.sleep(seconds)
    watching.cancel()
    await asyncio.gather(watching, return_exceptions=True)
    return [moment - api.lists[0] for moment in api.lists]


async def test_a_watch_that_is_too_old_is_followed_by_a_list_at_once():
    api = Api(410, refusals=1, seconds=1.1)
    assert await listed(api, seconds=1.4) == pytest.approx([0.0, 1.1], abs=0.2)


async def test_lists_are_not_asked_for_again_and_again():
    api = Api(410, refusals=1000)
    assert len(await listed(api, seconds=1.4)) <= 3


async def test_another_refusal_needs_no_new_list():
    api = Api(429, refusals=1)
    assert await listed(api, seconds=1.4) == [0.0]

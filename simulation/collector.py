# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The garbage collector: deletes what belongs to a Node that is gone, some seconds later.

It goes by the UID in `ownerReferences`, so a Node that is created again does not save anything.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial

from simulation.api.server import ApiServer, Watch
from simulation.time.timeline import Timeline


class Collector:
    """Watches the owners, of one kind, and deletes their objects, of another one.

    `delay` returns how many seconds a deletion takes.
    """

    def __init__(
        self, timeline: Timeline, api: ApiServer, delay: Callable[[], float], *, owned: str
    ) -> None:
        self._timeline = timeline
        self._api = api
        self._delay = delay
        self._owned = owned

    def follow(self, owners: str) -> None:
        """Begin to watch the owners."""
        self._api.follow(Watch(owners, "", lambda _stored: True, self._heard))

    def _heard(self, line: bytes) -> None:
        event = json.loads(line)
        if event["type"] == "DELETED":
            uid = event["object"]["metadata"]["uid"]
            self._timeline.after(self._delay(), partial(self._collect, uid))

    def _collect(self, uid: str) -> None:
        objects = self._api.objects
        for stored in list(objects.of_kind(self._owned, "")):
            owners = stored.body["metadata"].get("ownerReferences") or ()
            if any(owner["uid"] == uid for owner in owners):
                objects.drop(stored.key)

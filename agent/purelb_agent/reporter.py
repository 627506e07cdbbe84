# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Tells the API server which addresses this node announces; never in the way of announcing.

The loop leaves here what it did, and a task of its own writes it: the announcing annotations of
Services, and an event for each address gained. What could not be written is tried again; only the
latest state counts.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.announcing import (
    format_announcing,
    merge_announcing,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.configuration import (
    Choice,
    NodeConfig,
    SelectorState,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.model import (
    Address,
    Announcement,
    Service,
    ServiceKey,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.names import (
    ANNOUNCING_ANNOTATIONS,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.plan import Verdict

from . import clock, log
from .events import Events
from .kube import CONFLICT, NOT_FOUND, ApiError, Kube
from .store import NodeStore

_RETRY = 1.0
Claims = dict[ServiceKey, tuple[Announcement, ...]]


class Reporter:
    """Owns the entries of this node in the announcing annotations."""

    def __init__(self, kube: Kube, store: NodeStore, events: Events, node: str) -> None:
        self._store = store
        self._kube = kube
        self._events = events
        self._node = node
        self._claims: Claims = {}
        self._told: set[tuple[ServiceKey, Announcement]] = set()
        self._bad_config: NodeConfig | None = None
        self._failing = False
        self._work = asyncio.Event()

    def report(self, verdicts: Iterable[Verdict], held: frozenset[tuple[int, Address]]) -> None:
        """Take note of the addresses that this node holds now."""
        claims: dict[ServiceKey, list[Announcement]] = defaultdict(list)
        for verdict in verdicts:
            link, address = verdict.link, verdict.vip.address
            if link is not None and (link.index, address) in held:
                for key in verdict.vip.services:
                    claims[key].append(Announcement(self._node, link.name, address))
        self._claims = {key: tuple(entries) for key, entries in claims.items()}
        self._work.set()

    def report_choice(self, choice: Choice) -> None:
        """Take note of how the node is configured; an object that cannot be used gets an event."""
        self._bad_config = choice.config if choice.state is SelectorState.INVALID else None
        self._work.set()

    async def run(self) -> None:
        """Write what differs until cancelled."""
        while True:
            await self._work.wait()
            self._work.clear()
            await self._tell_bad_config()
            if not await self.write():
                await asyncio.sleep(_RETRY)
                self._work.set()

    async def _tell_bad_config(self) -> None:
        config, self._bad_config = self._bad_config, None
        if config is not None:
            await self._events.send(
                {"kind": "LBNodeAgent", "namespace": config.namespace, "name": config.name},
                uid=config.uid,
                reason="InvalidConfiguration",
                message=f"Node {self._node} announces nothing: {config.problem}",
                kind="Warning",
            )

    async def write(self) -> bool:
        """Bring all annotations in step; whether all of them are."""
        done = True
        live = frozenset(m.node for m in self._store.leases.membership.live(clock.now()))
        for service in tuple(self._store.services.records.values()):
            try:
                await self._write_service(service, live)
            except ApiError as problem:
                # A conflict resolves itself: the watch brings the newer Service.
                if problem.status not in (CONFLICT, NOT_FOUND) and not self._failing:
                    log.warning("annotationFailed", service=service.key, error=str(problem))
                    self._failing = True
                done = False
        self._failing = self._failing and not done
        return done

    async def _write_service(self, service: Service, live: frozenset[str]) -> None:
        claims = self._claims.get(service.key, ())
        changes: dict[str, str | None] = {}
        for version, annotation in ANNOUNCING_ANNOTATIONS.items():
            current = service.announcing.get(version, ())
            own = [c for c in claims if c.address and c.address.version == version]
            wanted = merge_announcing(current, own, node=self._node, live_nodes=live)
            if wanted != current and (own or any(e.node == self._node for e in current)):
                changes[annotation] = format_announcing(wanted) or None
        if changes:
            await self._kube.request(
                "PATCH",
                f"/api/v1/namespaces/{service.key.namespace}/services/{service.key.name}",
                {"metadata": {"resourceVersion": service.version, "annotations": changes}},
            )
        await self._tell(service, claims)

    async def _tell(self, service: Service, claims: tuple[Announcement, ...]) -> None:
        """Send an event for each address that is new to this node."""
        claimed = {(service.key, claim) for claim in claims}
        new = claimed - self._told
        self._told = {told for told in self._told if told[0] != service.key} | claimed
        for _key, claim in sorted(new, key=str):
            await self._events.send(
                {"kind": "Service", "namespace": service.key.namespace, "name": service.key.name},
                uid=service.uid,
                reason="AnnouncingLocal",
                message=(
                    f"Node {claim.node} announces {claim.address} on interface {claim.interface}"
                ),
            )

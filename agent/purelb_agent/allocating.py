# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The one task that gives addresses to Services and takes them back.

It owns what is taken. A Service is looked at when it or a ServiceGroup changed; what could not be
written is tried again, and until a write is seen in the Service itself the address stays taken.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core import codec
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.allocate import (
    Assignment,
    Outcome,
    Refusal,
    Release,
    Taken,
    decide,
    overlapping,
    rebuild,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.errors import ObjectError
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.model import (
    Address,
    Service,
    ServiceGroup,
    ServiceKey,
)

from . import log
from .events import About, Events
from .kube import CONFLICT, NOT_FOUND, ApiError, Kube
from .metrics import AllocatorMetrics
from .store import Json, group_table, service_table

_RETRY = 1.0


class Allocating:
    """Decides and writes, one Service after the other."""

    def __init__(self, kube: Kube, events: Events, metrics: AllocatorMetrics) -> None:
        self.is_ready = False
        self.services = service_table(self._services_changed)
        self.groups = group_table(self._groups_changed, on_error=self._group_refused)
        self._kube = kube
        self._events = events
        self._metrics = metrics
        self._taken = Taken()
        # A dictionary, for its order: who came first is served first.
        self._queue: dict[ServiceKey, None] = {}
        # Version of each Service after the last write: what is older says nothing new.
        self._written: dict[ServiceKey, str] = {}
        self._refusals: dict[ServiceKey, Refusal] = {}
        # Groups to allocate from; None after a change, also one in the middle of a round.
        self._usable: dict[str, ServiceGroup] | None = None
        self._bad_groups: list[tuple[Json, str]] = []
        self._told_overlaps: set[tuple[str, str]] = set()
        self._work = asyncio.Event()

    def _services_changed(self, keys: set[ServiceKey]) -> None:
        self._queue.update(dict.fromkeys(sorted(keys, key=str)))
        self._work.set()

    def _groups_changed(self, _names: set[str]) -> None:
        self._usable = None
        self._services_changed(set(self.services.records))

    def _group_refused(self, item: Json, problem: ObjectError) -> None:
        self._bad_groups.append((item["metadata"], f"{problem.field}: {problem.problem}"))
        self._work.set()

    async def run(self) -> None:
        """Allocate until cancelled."""
        while not (self.services.listed and self.groups.listed):
            await self._work.wait()
            self._work.clear()
        self._taken = rebuild(self.services.records.values())
        self._services_changed(set(self.services.records))
        self._metrics.config_loaded.set(1)
        log.info("stateRebuilt", addresses=len(self._taken.holders))
        while True:
            await self._work.wait()
            self._work.clear()
            await self._drain()
            self._tell_bad_groups()
            self._count()
            self.is_ready = True

    async def _drain(self) -> None:
        """Look at every queued Service."""
        self._usable_groups()  # told about even while there is no Service
        while self._queue:
            key = next(iter(self._queue))
            del self._queue[key]
            try:
                await self._settle(key, self._usable_groups())
            except ApiError as problem:
                # After a conflict the watch brings the newer Service, or the news that it is gone.
                if problem.status not in (CONFLICT, NOT_FOUND):
                    log.warning("writeFailed", service=key, error=str(problem))
                    loop = asyncio.get_running_loop()
                    loop.call_later(_RETRY, self._services_changed, {key})

    async def _settle(self, key: ServiceKey, groups: Mapping[str, ServiceGroup]) -> None:
        service = self.services.records.get(key)
        if service is None:
            self._free(key)
            self._refusals.pop(key, None)
            self._written.pop(key, None)
            return
        if codec.is_older(service.version, self._written.get(key, "")):
            return
        outcome = decide(service, groups, self._taken)
        if isinstance(outcome, Refusal):
            self._refuse(service, outcome)
            return
        self._refusals.pop(key, None)
        await self._carry_out(service, outcome)

    async def _carry_out(self, service: Service, outcome: Outcome) -> None:
        if isinstance(outcome, Assignment):
            # Taken first: whatever becomes of the writes, nobody else may get these. What the
            # Service had stays taken until it no longer has it.
            both = {*outcome.addresses, *self._taken.of(service.key)}
            self._taken = self._taken.with_service(service.key, both)
            await self._write(service, outcome)
            self._taken = self._taken.with_service(service.key, outcome.addresses)
            log.info(
                "allocated",
                service=service.key,
                group=outcome.group,
                addresses=",".join(map(str, outcome.addresses)),
            )
            self._event(
                service,
                "AddressAssigned",
                f"Assigned {', '.join(map(str, outcome.addresses))} "
                f"from ServiceGroup {outcome.group}",
            )
        elif isinstance(outcome, Release):
            await self._write(service, None)
            self._free(service.key)
        elif service.allocated_by_us:
            self._taken = self._taken.with_service(service.key, service.addresses)

    def _free(self, key: ServiceKey) -> None:
        freed = self._taken.of(key)
        if freed:
            self._taken = self._taken.with_service(key, ())
            log.info("released", service=key, addresses=",".join(sorted(map(str, freed))))
            # Who was refused may now be served.
            self._services_changed(set(self._refusals))

    async def _write(self, service: Service, assignment: Assignment | None) -> None:
        """Annotations first: agents act on the status, and by then must know the pool's type."""
        path = f"/api/v1/namespaces/{service.key.namespace}/services/{service.key.name}"
        annotations = codec.assignment_annotations(assignment)
        meta = {"resourceVersion": service.version, "annotations": annotations}
        body = await self._kube.request("PATCH", path, {"metadata": meta})
        addresses: tuple[Address, ...] = assignment.addresses if assignment else ()
        body = await self._kube.request(
            "PATCH",
            f"{path}/status",
            {
                "metadata": {"resourceVersion": body["metadata"]["resourceVersion"]},
                "status": codec.ingress_status(addresses),
            },
        )
        self._written[service.key] = body["metadata"]["resourceVersion"]

    def _refuse(self, service: Service, refusal: Refusal) -> None:
        if self._refusals.get(service.key) == refusal:
            return
        self._refusals[service.key] = refusal
        reason = refusal.reason.value
        self._metrics.rejected.of(refusal.group, refusal.group, reason).inc()
        log.warning("refused", service=service.key, reason=reason, message=refusal.message)
        self._event(service, "AllocationFailed", refusal.message, kind="Warning")

    def _event(self, service: Service, reason: str, message: str, *, kind: str = "Normal") -> None:
        about = About("Service", service.key.name, service.key.namespace, service.uid)
        self._events.tell(about, reason, message, kind=kind)

    def _usable_groups(self) -> dict[str, ServiceGroup]:
        """All groups but the later ones of those that overlap, which are told once."""
        if self._usable is None:
            groups = dict(self.groups.records)
            pairs = set(overlapping(groups.values()))
            for first, second in sorted(pairs):
                refused = groups.pop(second, None)
                if refused is not None and (first, second) not in self._told_overlaps:
                    message = (
                        f"its pool overlaps that of ServiceGroup {first}: nothing is allocated "
                        "from it until one of the two is changed"
                    )
                    log.warning("groupRefused", group=second, message=message)
                    about = {"name": second, "namespace": refused.namespace, "uid": refused.uid}
                    self._bad_groups.append((about, message))
            self._told_overlaps = pairs
            self._usable = groups
        return self._usable

    def _tell_bad_groups(self) -> None:
        told, self._bad_groups = self._bad_groups, []
        for meta, message in told:
            self._group_event(meta["name"], meta["namespace"], meta["uid"], message)

    def _group_event(self, name: str, namespace: str, uid: str, message: str) -> None:
        about = About("ServiceGroup", name, namespace, uid)
        self._events.tell(about, "GroupRefused", message, kind="Warning")

    def _count(self) -> None:
        groups = self.groups.records
        for name, group in groups.items():
            self._metrics.size.of(name, name).set(sum(r.size for r in group.ranges))
            self._metrics.in_use.of(name, name).set(self._taken.in_use(group))
        self._metrics.size.retain(groups)
        self._metrics.in_use.retain(groups)
        asked = {refusal.group for refusal in self._refusals.values()}
        self._metrics.rejected.retain(asked | set(groups))

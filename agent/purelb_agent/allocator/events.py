# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Log lines and Kubernetes events about what a Service got, or why it got nothing."""

from __future__ import annotations

from purelb.core.allocation.outcomes import Assignment, Refusal
from purelb.core.model import Address, Service
from purelb.core.names import (
    ALLOW_LOCAL_ANNOTATION,
    REEVALUATE_ANNOTATION,
    SERVICE_GROUP_ANNOTATION,
)
from purelb_agent.kube.events import EventReason, Events, ObjectReference
from purelb_agent.runtime import log


class ServiceEvents:
    """Reports outcomes; the caller calls it only for news."""

    def __init__(self, events: Events) -> None:
        self._events = events

    def assigned(self, service: Service, assignment: Assignment) -> None:
        """Report an assignment that was written."""
        addresses, group = ", ".join(map(str, assignment.addresses)), assignment.group
        log.info("allocated", service=service.key, group=group, addresses=addresses)
        self._event(service, "AddressAssigned", f"Assigned {addresses} from ServiceGroup {group}")
        if assignment.sets_cluster:
            self._event(
                service,
                "ExternalTrafficPolicyChanged",
                "externalTrafficPolicy is Cluster now: a local address is on one node only, which "
                f"need not have an endpoint; the annotation {ALLOW_LOCAL_ANNOTATION} keeps Local",
                kind="Warning",
            )
        if assignment.ambiguous:
            serving = ", ".join(assignment.ambiguous)
            self._event(
                service,
                "AmbiguousNamespaceDefault",
                f"ServiceGroups {serving} all serve this namespace and none sets namespaceDefault, "
                f"or more than one does, so ServiceGroup {group} was taken: set "
                "spec.namespaceDefault on one, or name one in the annotation "
                f"{SERVICE_GROUP_ANNOTATION}",
                kind="Warning",
            )
        if assignment.partial:
            ranges = ", ".join(map(str, assignment.partial))
            self._event(
                service,
                "MultiPoolPartial",
                f"No free address in {ranges} of ServiceGroup {group}: enlarge it",
                kind="Warning",
            )

    def out_of_pool(self, service: Service, group: str, addresses: tuple[Address, ...]) -> None:
        """Report that a Service keeps addresses that its group no longer holds."""
        kept = ", ".join(map(str, addresses))
        self._event(
            service,
            "AddressOutsidePool",
            f"Keeps {kept}, which ServiceGroup {group} does not hold any more: "
            f"put the range back, or set the annotation {REEVALUATE_ANNOTATION} to move",
            kind="Warning",
        )

    def released(self, service: Service, addresses: tuple[Address, ...]) -> None:
        """Report that a Service that is being deleted has lost its addresses."""
        self._event(
            service,
            "AddressReleased",
            f"Released {', '.join(map(str, addresses))}, as the Service is being deleted; it stays "
            "until its finalizers are removed",
        )

    def disputed(self, service: Service, what: str, remedy: str) -> None:
        """Report that others undo what the allocator writes; it waits longer each time."""
        log.warning("disputed", service=service.key, message=what)
        text = f"{what}. PureLB corrects it less and less often: {remedy}"
        self._event(service, "ServiceDisputed", text, kind="Warning")

    def refused(self, service: Service, refusal: Refusal) -> None:
        """Report why a Service gets no address; only the log says what concerns others."""
        reason = refusal.reason.value
        detail = {"detail": refusal.detail} if refusal.detail else {}
        log.warning(
            "refused", service=service.key, reason=reason, message=refusal.message, **detail
        )
        self._event(service, "AllocationFailed", f"{reason}: {refusal.message}", kind="Warning")

    def _event(
        self, service: Service, reason: EventReason, message: str, *, kind: str = "Normal"
    ) -> None:
        about = ObjectReference("Service", service.key.name, service.key.namespace, service.uid)
        self._events.record(about, reason, message, kind=kind)

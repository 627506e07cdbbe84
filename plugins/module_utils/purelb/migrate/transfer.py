# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The step hand_over: v1 releases the Services, and v2 serves them at the same addresses.

At no time do two programs serve one address: v2 ignores a Service of v1 until v1 has released it.
"""

from __future__ import annotations

from typing import List, Tuple

from ..core import names
from ..module.errors import ClusterError
from ..module.kube import Object
from ..module.manifests import reference
from . import handover
from .completion import await_healthy
from .context import MigrationContext
from .reader import AGENT, ALLOCATOR
from .step import Outcome

# No node has this label.
_NO_NODE = {"purelb.io/migration": "stopped"}


def hand_over(context: MigrationContext) -> Outcome:
    """Hand over the chosen Services one by one, or all at once after v1's agents have ended.

    Returns the Services that v1 still serves as `remaining`; not complete if there are any.
    """
    v2_objects = context.backup().becomes
    _stop(context, context.v1_program(ALLOCATOR))
    for obj in v2_objects:
        context.writer.apply(obj)
    _move_chosen(context)
    remaining = [obj for obj in context.reader.services() if handover.is_of_v1(obj)]
    if context.params["services"] and remaining:
        return Outcome({"remaining": [_name(obj) for obj in remaining]}, is_complete=False)
    _stop(context, context.v1_program(AGENT))
    _hand_over_all(context, remaining, v2_objects)
    await_healthy(context)
    return nothing_remains(context)


def nothing_remains(_context: MigrationContext) -> Outcome:
    """Returns that v1 serves no Service."""
    return Outcome({"remaining": []})


def _stop(context: MigrationContext, program: Object) -> None:
    """Remove all Pods of a program of v1 and wait until they are gone; keep the program."""
    found = context.reader.get(program)
    if found is None:
        return
    if program["kind"] == "Deployment":
        patch: Object = {"spec": {"replicas": 0}}
    else:
        patch = {"spec": {"template": {"spec": {"nodeSelector": _NO_NODE}}}}
    context.writer.patch(found, patch)
    labels = found["spec"]["selector"].get("matchLabels") or {}
    selector = ",".join(f"{key}={value}" for key, value in labels.items())
    context.waiter.until_none(
        lambda: [reference(pod) for pod in context.reader.v1_pods(selector)],
        f"Pods of {reference(program)} have not ended",
    )


def _move_chosen(context: MigrationContext) -> None:
    """Move the Services that have to go one by one, and those whose move was interrupted."""
    chosen = set(context.params["services"])
    found = {_name(obj): obj for obj in context.reader.services()}
    unknown = chosen - found.keys()
    if unknown:
        raise ClusterError(
            f"services: there is no Service {', '.join(sorted(unknown))}: write namespace/name of "
            "Services of type LoadBalancer"
        )
    for name, obj in sorted(found.items()):
        # A class that v2 does not serve has to change in any case.
        has_class = handover.class_of(obj) is not None
        is_chosen = context.params["one_by_one"] or name in chosen or has_class
        if handover.is_moving(obj) or (handover.is_of_v1(obj) and is_chosen):
            _move(context, obj)


def _move(context: MigrationContext, service: Object) -> None:
    """Move one Service from v1 to v2, with its addresses; continues an interrupted move."""
    now = service
    if not handover.is_moving(now):
        now = context.writer.patch(now, handover.release_patch(now))
    if context.check_mode:
        return  # the Service has not been released, so v2 cannot claim it
    if not handover.is_load_balancer(now):
        # v1 sees the change as soon as we do, but does not report when it has withdrawn.
        context.waiter.sleep(context.params["delay"])
        now = context.writer.patch(now, handover.claim_patch(now, handover.CLASS))
    now = context.waiter.until(now, _is_announced, "v2 assigns and announces its addresses")
    context.writer.patch(now, handover.cleanup_patch(now))


def _is_announced(service: Object) -> bool:
    """Whether v2 has assigned every requested address and a node announces each of them."""
    assigned = set(handover.addresses_of(service))
    annotations = service["metadata"].get("annotations") or {}
    requested = set(annotations.get(names.ADDRESSES_ANNOTATION, "").split(","))
    entries = " ".join(annotations.get(key, "") for key in names.ANNOUNCING_ANNOTATIONS.values())
    announced = {part for entry in entries.split() for part in entry.split(",")[2:]}
    return requested <= assigned <= announced


def _hand_over_all(
    context: MigrationContext, services: List[Object], v2_objects: Tuple[Object, ...]
) -> None:
    groups = handover.readable_groups(v2_objects)
    # v1 has ended: until this is written, no node announces these addresses.
    context.writer.patch_all(services, lambda service: handover.pool_type_patch(service, groups))


def _name(obj: Object) -> str:
    meta = obj["metadata"]
    return f"{meta['namespace']}/{meta['name']}"

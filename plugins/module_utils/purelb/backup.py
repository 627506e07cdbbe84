# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What a migration keeps of the objects before it, and how to tell that all is as it was.

Of a Service only what a PureLB writes counts: its owner may change the rest at any time. Who
announces an address is no part of what was, as agents write it anew. Pure.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any, Dict, Iterable, List, Tuple

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.names import (
    ALLOCATED_BY,
    ALLOCATED_BY_ANNOTATION,
    ANNOUNCING_ANNOTATIONS,
    API_GROUP,
)
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.manifests import (
    Object,
    changes,
    clean,
)

_OURS = f"{API_GROUP}/"


def backup_of(objects: Iterable[Object]) -> List[Object]:
    """The objects as they can be restored, in a fixed order; of Services those with addresses."""
    kept = (_kept(obj) for obj in objects if obj["kind"] != "Service" or _is_served(obj))
    return sorted(kept, key=_order)


def digest_of(backup: Iterable[Object]) -> str:
    """A text that is another one as soon as anything that counts is."""
    counted = [_counted(obj) if obj["kind"] == "Service" else clean(obj) for obj in backup]
    text = json.dumps(sorted(counted, key=_order), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def service_patches(now: Iterable[Object], before: Iterable[Object]) -> List[Object]:
    """Patches after which Services have from PureLB what they had before.

    Those that were made in between give back what they were given, as whoever gave it is gone.
    """
    was = {_order(obj): obj for obj in before if obj["kind"] == "Service"}
    patches = []
    for obj in now:
        if _order(obj) in was:
            patches.append(_patch(obj, was[_order(obj)]))
        elif _is_served(obj):
            patches.append(_patch(obj, {}))
    return [patch for patch in patches if patch]


def changed_addresses(now: Iterable[Object], before: Iterable[Object]) -> List[str]:
    """Services that are there before and now, and have other addresses."""
    has = {_order(obj): _ingress(obj) for obj in now}
    return [
        f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"
        for obj in before
        if obj["kind"] == "Service" and has.get(_order(obj), _ingress(obj)) != _ingress(obj)
    ]


def _order(obj: Object) -> Tuple[str, str, str]:
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace") or "", meta["name"]


def _is_served(obj: Object) -> bool:
    annotations = obj["metadata"].get("annotations") or {}
    return bool(annotations.get(ALLOCATED_BY_ANNOTATION) == ALLOCATED_BY)


def _kept(obj: Object) -> Object:
    kept = clean(obj)
    if obj["kind"] == "Service":
        kept["status"] = obj.get("status") or {}
    return kept


def _annotations(obj: Object) -> Dict[str, Any]:
    annotations = (obj.get("metadata") or {}).get("annotations") or {}
    return {key: text for key, text in annotations.items() if key.startswith(_OURS)}


def _ingress(obj: Object) -> List[str]:
    entries = ((obj.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    return sorted(str(entry.get("ip") or entry.get("hostname")) for entry in entries)


def _counted(obj: Object) -> Object:
    announcing = ANNOUNCING_ANNOTATIONS.values()
    annotations = {k: text for k, text in _annotations(obj).items() if k not in announcing}
    meta = obj["metadata"]
    return {
        "kind": obj["kind"],
        "metadata": {"namespace": meta["namespace"], "name": meta["name"]},
        "annotations": annotations,
        "addresses": _ingress(obj),
        "policy": (obj.get("spec") or {}).get("externalTrafficPolicy"),
    }


def _patch(now: Object, before: Object) -> Object:
    """What of one Service has to change; nothing if all is as it was."""
    patch: Object = {}
    annotations = changes(_annotations(now), _annotations(before))
    if annotations:
        patch["metadata"] = {"annotations": annotations}
    policy = (before.get("spec") or {}).get("externalTrafficPolicy")
    if policy and policy != now["spec"].get("externalTrafficPolicy"):
        patch["spec"] = {"externalTrafficPolicy": policy}
    if _ingress(now) != _ingress(before):
        ingress = ((before.get("status") or {}).get("loadBalancer") or {}).get("ingress")
        patch["status"] = {"loadBalancer": {"ingress": ingress}}
    if not patch:
        return {}
    meta = {field: now["metadata"][field] for field in ("namespace", "name")}
    head = {"apiVersion": now["apiVersion"], "kind": now["kind"]}
    return {**head, **patch, "metadata": {**meta, **patch.get("metadata", {})}}

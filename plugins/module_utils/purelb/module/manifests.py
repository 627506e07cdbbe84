# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Kubernetes objects as users compare them: what to show, and what counts as a change.

Pure: sends no requests.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any, Dict, Iterator, List, Optional, TypeVar

from ..core.errors import ObjectError

Object = Dict[str, Any]
T = TypeVar("T")

HIDDEN = "(hidden)"
HIDDEN_CHANGED = "(hidden, changed)"

# Fields that the API server maintains and no manifest sets.
NOISE = ("managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink")
# Written by controllers and kubectl; the last one contains a copy of a Secret's data.
NOISY_ANNOTATIONS = (
    "deployment.kubernetes.io/revision",
    "deprecated.daemonset.template.generation",
    "kubectl.kubernetes.io/last-applied-configuration",
)


def reference(obj: Object) -> str:
    """Returns the name of an object for messages: `Kind namespace/name`."""
    metadata = obj.get("metadata") or {}
    namespace = f"{metadata['namespace']}/" if metadata.get("namespace") else ""
    return f"{obj.get('kind', '?')} {namespace}{metadata.get('name', '?')}"


def check(obj: Object, *, where: str) -> None:
    """Raise ObjectError, naming the option `where`, unless kind and name are complete."""
    for field in ("apiVersion", "kind"):
        if not isinstance(obj.get(field), str):
            raise ObjectError(where, field, "missing")
    metadata = obj.get("metadata")
    if not isinstance(metadata, dict) or not metadata.get("name"):
        raise ObjectError(where, "metadata.name", "missing")


def clean(obj: Object) -> Object:
    """Returns a copy without status and maintained fields, to compare with another one."""
    kept = {key: deepcopy(value) for key, value in obj.items() if key not in ("status", "metadata")}
    metadata = {k: deepcopy(v) for k, v in obj.get("metadata", {}).items() if k not in NOISE}
    annotations = {
        key: value
        for key, value in (metadata.pop("annotations", None) or {}).items()
        if key not in NOISY_ANNOTATIONS
    }
    if annotations:
        metadata["annotations"] = annotations
    kept["metadata"] = metadata
    return kept


def action(before: Optional[T], after: Optional[T]) -> str:
    """Returns created, changed, unchanged, deleted or absent; None means that nothing exists."""
    if before is None:
        return "absent" if after is None else "created"
    if after is None:
        return "deleted"
    return "unchanged" if before == after else "changed"


def changes(before: Object, after: Object) -> Object:
    """Returns the merge patch (RFC 7386) from `before` to `after`; None removes a field."""
    patch: Object = dict.fromkeys(before.keys() - after.keys())
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            inner = changes(old, value)
            if inner:
                patch[key] = inner
        elif key not in before or value != old:
            patch[key] = deepcopy(value)
    return patch


def without_managed_fields(obj: Object) -> Object:
    """Returns the object without metadata.managedFields."""
    metadata = {k: v for k, v in obj["metadata"].items() if k != "managedFields"}
    return {**obj, "metadata": metadata}


def difference(before: Optional[Object], after: Optional[Object]) -> Dict[str, Any]:
    """Returns a change for `--diff`; of a Secret only which entries change, never their values."""
    old, new = (clean(obj) if obj else {} for obj in (before, after))
    if (old or new).get("kind") == "Secret":
        old, new = _hide(old, other={}), _hide(new, other=old)
    header = reference(after or before or {})
    return {"before_header": header, "after_header": header, "before": old, "after": new}


def secrets(objects: List[Object]) -> Iterator[str]:
    """Yields the values of all Secrets, which must not appear in any output."""
    for obj in objects:
        if obj.get("kind") == "Secret":
            for field in ("data", "stringData"):
                entries = obj.get(field)
                if isinstance(entries, dict):
                    yield from (str(value) for value in entries.values() if value)


def _hide(obj: Object, *, other: Object) -> Object:
    hidden = dict(obj)
    for field in ("data", "stringData"):
        if field in obj:
            others = other.get(field) or {}
            hidden[field] = {
                key: HIDDEN_CHANGED if key in others and others[key] != value else HIDDEN
                for key, value in (obj[field] or {}).items()
            }
    return hidden

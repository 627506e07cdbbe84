# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Conversion of one object between the API versions v1 and v2.

A conversion there and back loses nothing. Fields that the other version does not have are kept in
an annotation and restored from it; changes that a client of the other version made in between are
kept. Nothing is decided here: a v1 local pool stays local (see service_groups).
"""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Mapping, Optional

from ..errors import ObjectError, PureLBError
from ..names import (
    API_GROUP,
    API_VERSION,
    DUMMY_INTERFACE,
    IPAM_SOCKET,
    OLD_API_VERSION,
    V1_SPEC_ANNOTATION,
    V2_SPEC_ANNOTATION,
)

Json = Mapping[str, Any]
Object = Dict[str, Any]

POOLS = ("v4pool", "v4pools", "v6pool", "v6pools")
# The oldest spelling of v1: one range of either family, directly in spec.local.
FLAT = ("pool", "subnet", "aggregation")
_NETBOX = ("url", "tenant", "aggregation")
_SOURCES = ("local", "remote", "netbox", "external")

_OF_POOLS = {"skipIPv6DAD": bool, "multiPool": bool, "balancePools": bool}
# Fields that only v2 has, and their types. A list contains the type of its entries, `*` is any key.
# A test compares this with the CRDs.
V2_ONLY: Dict[str, Object] = {
    "ServiceGroup": {
        "local": _OF_POOLS,
        "remote": _OF_POOLS,
        "netbox": {"allowHTTP": bool},
        "external": {"provider": str, "socket": str, "announce": str},
        "namespaces": [str],
        "enforceNamespaces": bool,
        "namespaceDefault": bool,
        "sharing": str,
    },
    "LBNodeAgent": {
        "nodeSelector": {
            "matchLabels": {"*": str},
            "matchExpressions": [{"key": str, "operator": str, "values": [str]}],
        },
        "local": {
            "garpConfig": {
                "count": int,
                "intervalMs": int,
                "delayMs": int,
                "interval": str,
                "initialDelay": str,
                "verifyBeforeSend": bool,
            }
        },
    },
}
# The defaults that the API server sets in v2. A test compares this with the CRDs.
DEFAULTS: Object = {
    "aggregation": "default",
    "skipIPv6DAD": False,
    "multiPool": False,
    "balancePools": False,
    "allowHTTP": False,
    "socket": IPAM_SOCKET,
    "enforceNamespaces": False,
    "namespaceDefault": False,
    "sharing": "namespace",
    "localInterface": "default",
    "dummyInterface": DUMMY_INTERFACE,
    "enabled": True,
    "count": 3,
    "verifyBeforeSend": True,
}
_TYPES = {
    dict: "an object",
    list: "a list",
    str: "a text",
    int: "a whole number",
    bool: "a boolean",
}


class _FieldError(PureLBError):
    """An error in a field; `convert` turns it into an ObjectError that names the object."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(field, problem)
        self.field = field
        self.problem = problem


def reference(body: Json) -> str:
    """Return the name of an object for messages, even if the object is malformed."""
    meta = body.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    kind, namespace, name = body.get("kind"), meta.get("namespace"), meta.get("name")
    return f"{kind or '?'} {namespace or '?'}/{name or '?'}"


def convert(body: Json, *, to: str) -> Object:
    """Return the object in version `to` (v1 or v2); raises ObjectError if it is invalid."""
    where = reference(body)
    group, _slash, version = str(body.get("apiVersion")).partition("/")
    kind = _KINDS.get(str(body.get("kind")))
    if kind is None:
        raise ObjectError(where, "kind", f"must be one of {', '.join(sorted(_KINDS))}")
    if group != API_GROUP or version not in _WAYS:
        known = " or ".join(f"{API_GROUP}/{known}" for known in sorted(_WAYS))
        raise ObjectError(where, "apiVersion", f"must be {known}")
    if to not in _WAYS:
        raise ObjectError(where, "apiVersion", f"cannot become {to!r}, only v1 or v2")
    new = deepcopy(dict(body))
    if version == to:
        return new
    try:
        meta = _typed(new.setdefault("metadata", {}), dict, "metadata")
        annotations = _typed(meta.get("annotations") or {}, dict, "metadata.annotations")
        spec = _typed(new.get("spec") or {}, dict, "spec")
        new["spec"] = _WAYS[to](kind, spec, annotations)
    except _FieldError as error:
        raise ObjectError(where, error.field, error.problem) from error
    if annotations:
        meta["annotations"] = annotations
    else:
        meta.pop("annotations", None)
    new["apiVersion"] = f"{API_GROUP}/{to}"
    return new


@dataclass(frozen=True)
class _Kind:
    """How a kind is converted; `plain` converts only the fields that both versions have."""

    plain_v2: Callable[[Json], Object]
    plain_v1: Callable[[Json], Object]
    # The fields that only v2 has, without defaults.
    rest: Callable[[Json], Object]
    # The plain v2 merged with these fields.
    complete: Callable[[Json, Json], Object]
    v2_only: Object


def _to_v2(kind: _Kind, spec: Json, annotations: Object) -> Object:
    kept = _kept(annotations.pop(V2_SPEC_ANNOTATION, None), kind.v2_only)
    annotations.pop(V1_SPEC_ANNOTATION, None)
    new = kind.complete(kept, kind.plain_v2(spec))
    if kind.plain_v1(new) != spec:
        annotations[V1_SPEC_ANNOTATION] = _dump(spec)
    return new


def _to_v1(kind: _Kind, spec: Json, annotations: Object) -> Object:
    annotations.pop(V2_SPEC_ANNOTATION, None)
    new = kind.plain_v1(spec)
    original = _original(annotations.pop(V1_SPEC_ANNOTATION, None))
    rest = kind.rest(spec)
    if rest:
        annotations[V2_SPEC_ANNOTATION] = _dump(rest)
    return new if original is None or not _means_same(kind, original, new) else original


_WAYS: Dict[str, Callable[[_Kind, Json, Object], Object]] = {
    OLD_API_VERSION: _to_v1,
    API_VERSION: _to_v2,
}


def _dump(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _load(text: Any) -> Any:
    try:
        return json.loads(text)
    except (TypeError, ValueError, RecursionError):
        return None


def _kept(text: Any, shape: Object) -> Object:
    """Return the v2 fields in a v1 object's annotation, which nothing else validates."""
    if text is None:
        return {}
    field = f"metadata.annotations[{V2_SPEC_ANNOTATION}]"
    kept = _load(text)
    if not isinstance(kept, dict):
        raise _FieldError(field, "is not a JSON object: remove the annotation, or write v2")
    _check(kept, shape, field)
    return kept


def _original(text: Any) -> Optional[Object]:
    """Return the original v1 spec; None if unreadable, as v2 has the same content."""
    original = _load(text)
    return original if isinstance(original, dict) else None


def _means_same(kind: _Kind, one: Json, other: Json) -> bool:
    """Whether two v1 specs are different spellings of the same content."""
    try:
        return bool(bare(kind.plain_v2(one)) == bare(kind.plain_v2(other)))
    except _FieldError:
        return False


def bare(value: Any) -> Any:
    """Return a spec without defaults, and without fields that are empty then."""
    if isinstance(value, list):
        return [bare(entry) for entry in value]
    if not isinstance(value, dict):
        return value
    parts = {key: bare(part) for key, part in value.items()}
    return {k: part for k, part in parts.items() if part != {} and part != DEFAULTS.get(k, {})}


def _typed(value: Any, kind: type, field: str) -> Any:
    # In Python a boolean is an int.
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise _FieldError(field, f"must be {_TYPES[kind]}")
    return value


def _check(value: Any, shape: Any, field: str) -> None:
    """Raise a _FieldError unless a value has the shape that the API server would require."""
    if isinstance(shape, list):
        for number, entry in enumerate(_typed(value, list, field)):
            _check(entry, shape[0], f"{field}[{number}]")
    elif isinstance(shape, dict):
        for key, part in _typed(value, dict, field).items():
            inner = shape.get(key, shape.get("*"))
            if inner is None:
                raise _FieldError(f"{field}.{key}", "is not a field that only v2 has: remove it")
            _check(part, inner, f"{field}.{key}")
    else:
        _typed(value, shape, field)


def _pick(value: Any, shape: Object, field: str) -> Object:
    """Return the part of a value that the shape names, without defaults."""
    picked: Object = {}
    for key, part in _typed(value, dict, field).items():
        inner = shape.get(key)
        if isinstance(inner, dict) and "*" not in inner:
            part = _pick(part, inner, f"{field}.{key}")  # noqa: PLW2901 - reduced to the shape
        if inner is not None and part != {} and part != DEFAULTS.get(key, {}):
            picked[key] = part
    return picked


def _merged(under: Json, over: Json) -> Object:
    """Merge two objects recursively; they share only keys whose values are objects."""
    shared = {key: _merged(under[key], over[key]) for key in under.keys() & over.keys()}
    return {**under, **over, **shared}


def _only(value: Json, fields: Any) -> Object:
    return {field: value[field] for field in fields if field in value}


def _inner(spec: Json, field: str) -> Object:
    """Return an object inside of spec, or an empty one."""
    inner: Object = _typed(spec.get(field, {}), dict, f"spec.{field}")
    return inner


def v1_entries(local: Json) -> Dict[int, List[Object]]:
    """Return the ranges of a v1 pool by IP version, in the order in which v1 tries them."""
    flat = _only(local, FLAT)
    # Only the colon is checked; the parser of the range reports invalid text.
    version = 6 if ":" in f"{flat.get('pool')}{flat.get('subnet')}" else 4
    entries: Dict[int, List[Object]] = {4: [], 6: []}
    entries[version] += [flat] if "pool" in flat else []
    for family, found in entries.items():
        single, many = f"v{family}pool", f"v{family}pools"
        if single in local:
            found.append(_typed(local[single], dict, f"spec.local.{single}"))
        found.extend(_typed(local.get(many, []), list, f"spec.local.{many}"))
    return entries


def _group_v2(spec: Json) -> Object:
    new: Object = {}
    if "local" in spec:
        local = _inner(spec, "local")
        new["local"] = {}
        for version, entries in v1_entries(local).items():
            many = f"v{version}pools"
            if len(entries) == 1 and many not in local:
                new["local"][f"v{version}pool"] = entries[0]
            elif entries:
                new["local"][many] = entries
    if "netbox" in spec:
        new["netbox"] = _only(_inner(spec, "netbox"), _NETBOX)
    return new


def _group_v1(spec: Json) -> Object:
    new: Object = {}
    pools = next((source for source in ("local", "remote") if source in spec), None)
    if pools is not None:
        new["local"] = _only(_inner(spec, pools), POOLS)
    if "netbox" in spec:
        new["netbox"] = _only(_inner(spec, "netbox"), _NETBOX)
    return new


def _group_rest(spec: Json) -> Object:
    rest = _pick(spec, V2_ONLY["ServiceGroup"], "spec")
    if "remote" in spec and "local" not in spec:
        rest.setdefault("remote", {})
    # v1 implies it for such a URL, so only the opposite is kept.
    if _is_http(spec) and rest.pop("netbox", None) is None:
        rest["netbox"] = {"allowHTTP": False}
    return rest


def _is_http(spec: Json) -> bool:
    """Whether NetBox is asked over HTTP without TLS: v1 always does so, v2 only with allowHTTP."""
    return str(_inner(spec, "netbox").get("url")).startswith("http://")


def _group_complete(kept: Json, plain: Json) -> Object:
    new = dict(plain)
    if "remote" in kept and "local" in new:
        new["remote"] = new.pop("local")
    # A source that a client of v1 removed or replaced is not restored.
    rest = {
        field: part
        for field, part in kept.items()
        if field not in _SOURCES or field in new or (field == "external" and not new)
    }
    if _is_http(new):
        rest.setdefault("netbox", {"allowHTTP": True})
    return _merged(rest, new)


# The names of fields in v1 and in v2.
_AGENT_FIELDS = {
    "localint": "localInterface",
    "extlbint": "dummyInterface",
    "interfaces": "interfaces",
    "addressConfig": "addressConfig",
}


def _agent_v2(spec: Json) -> Object:
    local = _inner(spec, "local")
    new = {theirs: local[ours] for ours, theirs in _AGENT_FIELDS.items() if ours in local}
    # v1 announces only if enabled; v2 unless disabled.
    new["garpConfig"] = {"enabled": local.get("sendgarp", False)}
    return {"local": new}


def _agent_v1(spec: Json) -> Object:
    local = _inner(spec, "local")
    new = {ours: local[theirs] for ours, theirs in _AGENT_FIELDS.items() if theirs in local}
    announced = _typed(local.get("garpConfig", {}), dict, "spec.local.garpConfig")
    new["sendgarp"] = announced.get("enabled", True)
    return {"local": new}


def _agent_rest(spec: Json) -> Object:
    return _pick(spec, V2_ONLY["LBNodeAgent"], "spec")


_KINDS = {
    "ServiceGroup": _Kind(
        _group_v2, _group_v1, _group_rest, _group_complete, V2_ONLY["ServiceGroup"]
    ),
    "LBNodeAgent": _Kind(_agent_v2, _agent_v1, _agent_rest, _merged, V2_ONLY["LBNodeAgent"]),
}

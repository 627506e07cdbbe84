# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Objects as the API server keeps them: one counter of versions, and a log for the watches.

Each version is kept as text, which every reader decodes again, so no two share an
object. Fields are read only where a selector asks for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Json = dict[str, Any]


class Key(NamedTuple):
    """An object: its kind, for example `/api/v1/nodes`, its namespace or "", and its name."""

    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of an object; `body` is the server's own and must not be changed."""

    key: Key
    version: int
    body: Json
    text: bytes


@dataclass(frozen=True, slots=True)
class Change:
    """A change of an object; `before` is None for a new one, `after` for a deleted one.

    The text of a deleted object has the version of its end.
    """

    key: Key
    version: int
    before: Stored | None
    after: Stored | None
    text: bytes


@dataclass(frozen=True, slots=True)
class Backup:
    """All objects as they were at a version."""

    version: int
    stored: dict[str, dict[Key, Stored]]


class Objects:
    """All objects of a cluster, and the newest changes, oldest first.

    `changed` is called with each change.
    """

    def __init__(self, changed: Callable[[Change], None]) -> None:
        self.version = 0
        self.log: list[Change] = []
        self._changed = changed
        self._stored: dict[str, dict[Key, Stored]] = {}
        self._made = 0

    def find(self, key: Key) -> Stored | None:
        """Return the present version of an object."""
        return self._stored.get(key.kind, {}).get(key)

    def of_kind(self, kind: str, namespace: str) -> Iterator[Stored]:
        """Yield the objects of a kind in a namespace, or in all if that is empty."""
        for key, stored in sorted(self._stored.get(kind, {}).items()):
            if not namespace or key.namespace == namespace:
                yield stored

    def as_of(self, kind: str, version: int) -> list[Stored]:
        """Return the objects of a kind, in order, as at a version that the log reaches."""
        found = dict(self._stored.get(kind, {}))
        for change in reversed(self.log):
            if change.version <= version:
                break
            if change.key.kind != kind:
                continue
            if change.before is None:
                del found[change.key]
            else:
                found[change.key] = change.before
        return [stored for _key, stored in sorted(found.items())]

    def backup(self) -> Backup:
        """Return all objects as they are now."""
        return Backup(self.version, {kind: dict(of) for kind, of in self._stored.items()})

    def restore(self, backup: Backup) -> None:
        """Have the objects of a backup and its version again; no watch is told."""
        self.version = backup.version
        self._stored = {kind: dict(of) for kind, of in backup.stored.items()}
        self.log.clear()

    def next_uid(self) -> str:
        """Return a UID that no other object has."""
        self._made += 1
        return f"uid-{self._made}"

    def put(self, key: Key, body: Json) -> Stored:
        """Store a version of an object, which gets the next number, and announce it.

        The body may share parts with former versions, which are never changed.
        """
        self.version += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        text = json.dumps(body, separators=(",", ":")).encode()
        stored = Stored(key, self.version, body, text)
        of_kind = self._stored.setdefault(key.kind, {})
        change = Change(key, self.version, of_kind.get(key), stored, text)
        of_kind[key] = stored
        self._announce(change)
        return stored

    def drop(self, key: Key) -> None:
        """Delete an object and announce it."""
        before = self._stored[key.kind].pop(key)
        self.version += 1
        metadata = {**before.body["metadata"], "resourceVersion": str(self.version)}
        text = json.dumps({**before.body, "metadata": metadata}, separators=(",", ":")).encode()
        self._announce(Change(key, self.version, before, None, text))

    def _announce(self, change: Change) -> None:
        self.log.append(change)
        self._changed(change)


# Decides whether a selector takes an object.
Selects = Callable[[Stored], bool]


def field_selector(text: str) -> Selects:
    """Return what a field selector takes: `path=value` or `path!=value`, joined by commas."""
    wanted = tuple(_requirement(part) for part in text.split(",") if part)

    def selects(stored: Stored) -> bool:
        return all((_at(stored.body, path) == value) is equal for path, equal, value in wanted)

    return selects


def _requirement(part: str) -> tuple[tuple[str, ...], bool, str]:
    path, is_unequal, value = part.partition("!=")
    if not is_unequal:
        path, _equals, value = part.partition("=")
    return tuple(path.split(".")), not is_unequal, value


def _at(body: Any, path: tuple[str, ...]) -> str:
    for name in path:
        if not isinstance(body, Mapping):
            return ""
        body = body.get(name)
    return "" if body is None else str(body)


def merged(target: Any, patch: Any) -> Any:
    """Return a JSON value with a merge patch applied (RFC 7386); neither is changed."""
    if not isinstance(patch, Mapping):
        return patch
    result = dict(target) if isinstance(target, Mapping) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result

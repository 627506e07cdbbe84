# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The API server's answers: what it reads, writes and refuses, and what it reports to watches.

The rules are those that the programs can notice. Bodies are not validated.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from purelb.core.times import format_time
from simulation.api.objects import (
    Backup,
    Change,
    Json,
    Key,
    Objects,
    Selects,
    Stored,
    field_selector,
    merged,
)

CREATED, OK = 201, 200
FORBIDDEN, NOT_FOUND, CONFLICT, GONE = 403, 404, 409, 410


class RefusedError(Exception):
    """The server does not do what a request asks for."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.status, self.reason = status, reason


@dataclass(frozen=True, slots=True)
class Request:
    """A request as it arrives; `user` is who sent it."""

    user: str
    method: str
    path: str
    params: Mapping[str, str]
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Write:
    """What an admission policy judges; `new` is None for a deletion."""

    user: str
    key: Key
    subresource: str
    old: Json | None
    new: Json | None


# Returns why a write is refused; empty if it is not.
Policy = Callable[[Write], str]


@dataclass(frozen=True, slots=True)
class Target:
    """What a path leads to; without a name to all objects of the kind."""

    kind: str
    namespace: str
    name: str = ""
    subresource: str = ""

    @property
    def key(self) -> Key:
        """The object."""
        return Key(self.kind, self.namespace, self.name)


@lru_cache(maxsize=1024)
def target_of(path: str) -> Target:
    """Parse a path, such as `/api/v1/namespaces/default/services/web/status`."""
    parts = path.strip("/").split("/")
    depth = 2 if parts[0] == "api" else 3
    root, rest = "/".join(parts[:depth]), parts[depth:]
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2:  # noqa: PLR2004 - more than the Namespace itself
        namespace, rest = rest[1], rest[2:]
    plural, name, subresource = [*rest, "", ""][:3]
    return Target(f"/{root}/{plural}", namespace, name, subresource)


@dataclass(eq=False)
class Watch:
    """A stream of changes of one kind; `tell` gets each line, `ended` is called at its end.

    `since`: the version after which its changes begin.
    """

    kind: str
    namespace: str
    selects: Selects
    tell: Callable[[bytes], None]
    ended: Callable[[], None] = lambda: None
    since: int = 0

    def takes(self, change: Change) -> bool:
        """Whether it is to hear of a change: of its kind and namespace, and new to it.

        The version may be one of the future, after a restore. The real server accepts it and sends
        nothing up to it, bookmarks neither (cacheWatcher.process in k8s.io/apiserver,
        pkg/storage/cacher). Only for a list of such a version it answers 504, "Too large resource
        version", and the programs name no version when they list.
        """
        key = change.key
        is_there = not self.namespace or key.namespace == self.namespace
        return key.kind == self.kind and is_there and change.version > self.since

    def line(self, change: Change) -> bytes | None:
        """Return the event of a change, by what the selector takes; None if it takes nothing."""
        was = change.before is not None and self.selects(change.before)
        is_now = change.after is not None and self.selects(change.after)
        if not (was or is_now):
            return None
        kind = b"MODIFIED" if was and is_now else b"ADDED" if is_now else b"DELETED"
        return _event(kind, change.text)


def _page(token: str, kind: str) -> tuple[int, Key]:
    """Return the version of a list in pages, and the last object of the page before."""
    version, namespace, name = token.split("/")
    return int(version), Key(kind, namespace, name)


def _event(kind: bytes, text: bytes) -> bytes:
    return b'{"type":"' + kind + b'","object":' + text + b"}\n"


def status_text(error: RefusedError) -> bytes:
    """Return the body of a refusal."""
    body = {
        "kind": "Status",
        "code": error.status,
        "reason": error.reason,
        "message": str(error),
    }
    return json.dumps(body).encode()


@dataclass
class ApiServer:
    """One API server with its store.

    `oldest` is the version before which the changes are forgotten. `writes` counts by user and kind
    what changed something. `clock` returns the server's own time, in seconds since the epoch.
    """

    policies: list[Policy] = field(default_factory=list)
    oldest: int = 0
    writes: dict[tuple[str, str], int] = field(default_factory=dict)
    clock: Callable[[], float] = lambda: 0.0

    def __post_init__(self) -> None:
        self.objects = Objects(self._publish)
        self._watches: dict[str, list[Watch]] = {}

    # Reading

    def answer(self, request: Request) -> tuple[int, bytes]:
        """Carry out a request that is no watch; return status and body."""
        try:
            return self._answer(request)
        except RefusedError as error:
            return error.status, status_text(error)

    def _answer(self, request: Request) -> tuple[int, bytes]:
        target = target_of(request.path)
        if request.method == "GET":
            if not target.name:
                return OK, self._list(target, request.params)
            return OK, self._existing(target.key).text
        body = json.loads(request.body) if request.body else {}
        if request.method == "POST":
            return CREATED, self._create(request, target, body)
        if request.method == "DELETE":
            return OK, self._delete(request, target, body)
        return OK, self._change(request, target, body)

    def _existing(self, key: Key) -> Stored:
        stored = self.objects.find(key)
        if stored is None:
            raise RefusedError(NOT_FOUND, "NotFound", f"{key.kind} {key.name!r} not found")
        return stored

    def _list(self, target: Target, params: Mapping[str, str]) -> bytes:
        """Return a list, or a page of it: all its pages are of the version of the first one."""
        selects = field_selector(params.get("fieldSelector", ""))
        version, after = self.objects.version, None
        found: Iterable[Stored] = self.objects.of_kind(target.kind, target.namespace)
        if "continue" in params:
            version, after = _page(params["continue"], target.kind)
            if version < self.oldest:
                raise RefusedError(GONE, "Expired", "the continue parameter is too old")
            found = (s for s in self.objects.as_of(target.kind, version) if s.key > after)
        there = (s for s in found if not target.namespace or s.key.namespace == target.namespace)
        taken = [stored for stored in there if selects(stored)]
        limit = int(params.get("limit", "0")) or len(taken)
        metadata = {"resourceVersion": str(version)}
        if len(taken) > limit:
            _kind, namespace, name = taken[limit - 1].key
            metadata["continue"] = f"{version}/{namespace}/{name}"
        items = b",".join(stored.text for stored in taken[:limit])
        return b'{"metadata":' + json.dumps(metadata).encode() + b',"items":[' + items + b"]}"

    # Writing

    def _create(self, request: Request, target: Target, body: Json) -> bytes:
        metadata = body["metadata"]
        namespace = metadata.get("namespace") or target.namespace
        key = Key(target.kind, namespace, metadata["name"])
        if self.objects.find(key) is not None:
            raise RefusedError(CONFLICT, "AlreadyExists", f"{key.name!r} already exists")
        metadata = {**metadata, "namespace": namespace, "uid": self.objects.next_uid()}
        return self._write(request, target, key, None, {**body, "metadata": metadata})

    def _delete(self, request: Request, target: Target, options: Json) -> bytes:
        stored = self._existing(target.key)
        wanted = options.get("preconditions") or {}
        self._refuse_other_version(stored, wanted)
        self._admit(Write(request.user, target.key, "", stored.body, None))
        self.objects.drop(target.key)
        self._count(request.user, target.kind)
        return stored.text

    def _change(self, request: Request, target: Target, body: Json) -> bytes:
        stored = self._existing(target.key)
        self._refuse_other_version(stored, body.get("metadata") or {})
        new = body if request.method == "PUT" else merged(stored.body, body)
        if target.subresource == "status":
            # Labels and annotations go with the status, as they do in Kubernetes.
            new = {**stored.body, "metadata": new["metadata"], "status": new.get("status")}
        for name in ("uid", "namespace", "name"):
            new["metadata"][name] = stored.body["metadata"].get(name)
        return self._write(request, target, target.key, stored, new)

    def _refuse_other_version(self, stored: Stored, wanted: Mapping[str, Any]) -> None:
        metadata = stored.body["metadata"]
        for name in ("resourceVersion", "uid"):
            if wanted.get(name) and wanted[name] != metadata[name]:
                message = f"{stored.key.name!r}: the object has been modified"
                raise RefusedError(CONFLICT, "Conflict", message)

    def _write(
        self, request: Request, target: Target, key: Key, stored: Stored | None, new: Json
    ) -> bytes:
        old = None if stored is None else stored.body
        if stored is not None:
            for name in ("resourceVersion", "managedFields"):
                if name in stored.body["metadata"]:
                    new["metadata"][name] = stored.body["metadata"][name]
            if new == old:
                return stored.text
        self._admit(Write(request.user, key, target.subresource, old, new))
        if key.kind.endswith("/leases"):
            # Of the others nothing reads them.
            new["metadata"]["managedFields"] = [{"time": format_time(int(self.clock()))}]
        written = self.objects.put(key, new)
        self._count(request.user, key.kind)
        return written.text

    def _admit(self, write: Write) -> None:
        for policy in self.policies:
            why = policy(write)
            if why:
                raise RefusedError(FORBIDDEN, "Forbidden", why)

    def _count(self, user: str, kind: str) -> None:
        self.writes[user, kind] = self.writes.get((user, kind), 0) + 1

    # Restoring

    def backup(self) -> Backup:
        """Return what the store has now."""
        return self.objects.backup()

    def restore(self, backup: Backup) -> None:
        """Put a store back as it was: the versions since then come again, with other contents.

        The server is restarted, so all watches end and no changes are known.
        """
        self.objects.restore(backup)
        self.oldest = backup.version
        for watch in [watch for of_kind in self._watches.values() for watch in of_kind]:
            watch.ended()

    # Watching

    def watch(self, request: Request, watch: Watch) -> list[bytes]:
        """Begin a watch and return its first lines; RefusedError if its version is too old."""
        since = int(request.params["resourceVersion"])
        if since < self.oldest:
            raise RefusedError(GONE, "Expired", f"too old resource version: {since}")
        watch.since = since
        self.follow(watch)
        missed = (change for change in self.objects.log if watch.takes(change))
        return [line for line in map(watch.line, missed) if line is not None]

    def follow(self, watch: Watch) -> None:
        """Tell a watch of all changes from now on."""
        self._watches.setdefault(watch.kind, []).append(watch)

    def forget(self, watch: Watch) -> None:
        """End a watch whose client is gone."""
        of_kind = self._watches.get(watch.kind, [])
        if watch in of_kind:
            of_kind.remove(watch)

    @property
    def watch_count(self) -> int:
        """How many watches are open."""
        return sum(map(len, self._watches.values()))

    def send_bookmarks(self) -> None:
        """Tell every watch the present version."""
        text = b'{"metadata":{"resourceVersion":"%d"}}' % self.objects.version
        for of_kind in self._watches.values():
            for watch in of_kind:
                if watch.since <= self.objects.version:
                    watch.tell(_event(b"BOOKMARK", text))

    def compact(self) -> None:
        """Forget the changes until now; watches that are open continue."""
        self.oldest = self.objects.version
        self.objects.log.clear()

    def _publish(self, change: Change) -> None:
        for watch in self._watches.get(change.key.kind, ()):
            line = watch.line(change) if watch.takes(change) else None
            if line is not None:
                watch.tell(line)

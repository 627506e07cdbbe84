# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What a migration keeps of the objects before it, and how to tell that all is as it was.

Of a Service only what a PureLB writes counts: its owner may change the rest at any time. Pure but
for the file.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict, Iterable, List, Tuple

from ..module.errors import ClusterError
from ..module.manifests import Object, clean
from . import handover

Key = Tuple[str, str, str]


@dataclass(frozen=True)
class Backup:
    """The objects as they were, and the v2 objects that were decided to take their place."""

    before: Tuple[Object, ...]
    becomes: Tuple[Object, ...]

    def of(self, *kinds: str) -> List[Object]:
        """What was there of some kinds."""
        return [obj for obj in self.before if obj["kind"] in kinds]

    @property
    def services(self) -> Dict[Key, Object]:
        """The Services that had addresses, by kind, namespace and name."""
        return {key_of(obj): obj for obj in self.of("Service")}

    def text(self) -> str:
        """What the file has."""
        content = {"before": self.before, "becomes": self.becomes}
        return json.dumps(content, indent=2, sort_keys=True) + "\n"


def take(objects: Iterable[Object], becomes: Iterable[Object]) -> Backup:
    """The objects as they can be restored, in a fixed order; of Services those with addresses."""
    kept = (
        handover.kept(obj) if obj["kind"] == "Service" else clean(obj)
        for obj in objects
        if obj["kind"] != "Service" or handover.is_marked(obj)
    )
    return Backup(tuple(sorted(kept, key=key_of)), tuple(becomes))


def write(backup: Backup, path: str) -> str:
    """Write the file, whole or not at all; returns its checksum (SHA-256, hexadecimal)."""
    text = backup.text()
    file = Path(path)
    beside = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # Of Services and programs it may tell what is nobody's business.
            with os.fdopen(os.open(str(beside), os.O_WRONLY | os.O_CREAT, 0o600), "w") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(file)
        finally:
            if beside.exists():
                beside.unlink()
    except OSError as error:
        raise ClusterError(f"backup: {path} cannot be written: {error.strerror}") from error
    return _sum(text)


def read(path: str, checksum: str) -> Backup:
    """The backup in a file; an error unless it is the one with this checksum."""
    remediation = (
        "give the file of the first run; the ConfigMap purelb-migration says which that was"
    )
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"backup: {path} cannot be read: {error}: {remediation}") from error
    if _sum(text) != checksum:
        raise ClusterError(f"backup: {path} is not what this migration began with: {remediation}")
    content: Dict[str, Any] = json.loads(text)
    return Backup(tuple(content["before"]), tuple(content["becomes"]))


def differences(now: Iterable[Object], backup: Backup) -> List[str]:
    """What is not as the backup says, by kind, namespace and name."""
    is_now = {key_of(obj): _counted(obj) for obj in take(now, ()).before}
    was = {key_of(obj): _counted(obj) for obj in backup.before}
    other = (key for key in is_now.keys() | was.keys() if is_now.get(key) != was.get(key))
    return [title(key) for key in sorted(other)]


def readdressed(now: Iterable[Object], backup: Backup) -> List[str]:
    """Services that are there before and now, and have other addresses."""
    has = {key_of(obj): handover.addresses_of(obj) for obj in now}
    return [
        title(key)
        for key, obj in backup.services.items()
        if has.get(key, handover.addresses_of(obj)) != handover.addresses_of(obj)
    ]


def key_of(obj: Object) -> Key:
    """Kind, namespace and name."""
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace") or "", meta["name"]


def title(key: Key) -> str:
    """How messages name an object."""
    kind, namespace, name = key
    return f"{kind} " + "/".join(filter(None, (namespace, name)))


def _counted(obj: Object) -> Object:
    return handover.counted(obj) if obj["kind"] == "Service" else clean(obj)


def _sum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

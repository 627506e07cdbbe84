# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The backup of the objects that a migration changes, and the comparison with it.

Of a Service only what PureLB writes is compared: its owner may change the rest at any time. Pure
except for the file.
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
    """The objects before the migration, and the v2 objects that replace them."""

    before: Tuple[Object, ...]
    becomes: Tuple[Object, ...]

    def of_kind(self, *kinds: str) -> List[Object]:
        """Returns the objects of some kinds."""
        return [obj for obj in self.before if obj["kind"] in kinds]

    @property
    def services(self) -> Dict[Key, Object]:
        """The Services with addresses of PureLB, by kind, namespace and name."""
        return {key_of(obj): obj for obj in self.of_kind("Service")}

    def text(self) -> str:
        """Returns the content of the file (JSON)."""
        content = {"before": self.before, "becomes": self.becomes}
        return json.dumps(content, indent=2, sort_keys=True) + "\n"


def take(objects: Iterable[Object], becomes: Iterable[Object]) -> Backup:
    """Returns a backup, sorted by key; of Services those with addresses of PureLB."""
    saved = (
        handover.for_backup(obj) if obj["kind"] == "Service" else clean(obj)
        for obj in objects
        if obj["kind"] != "Service" or handover.is_marked(obj)
    )
    return Backup(tuple(sorted(saved, key=key_of)), tuple(becomes))


def write(backup: Backup, path: str) -> str:
    """Write the file atomically; returns its checksum (SHA-256, hexadecimal)."""
    text = backup.text()
    file = Path(path)
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        try:
            # For the owner only: Services and programs may contain what others must not read.
            with os.fdopen(os.open(str(temporary), os.O_WRONLY | os.O_CREAT, 0o600), "w") as stream:
                stream.write(text)
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(file)
        finally:
            if temporary.exists():
                temporary.unlink()
    except OSError as error:
        raise ClusterError(f"backup: {path} cannot be written: {error.strerror}") from error
    return _checksum(text)


def read(path: str, checksum: str) -> Backup:
    """Returns the backup in a file; ClusterError unless it has this checksum."""
    remediation = "give the file of the first run; its path is in the ConfigMap purelb-migration"
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"backup: {path} cannot be read: {error}: {remediation}") from error
    if _checksum(text) != checksum:
        raise ClusterError(f"backup: {path} is not the backup of this migration: {remediation}")
    content: Dict[str, Any] = json.loads(text)
    return Backup(tuple(content["before"]), tuple(content["becomes"]))


def differences(now: Iterable[Object], backup: Backup) -> List[str]:
    """Returns the titles of objects that differ from the backup, are missing, or are new."""
    after = {key_of(obj): _comparable(obj) for obj in take(now, ()).before}
    before = {key_of(obj): _comparable(obj) for obj in backup.before}
    changed = (key for key in after.keys() | before.keys() if after.get(key) != before.get(key))
    return [title(key) for key in sorted(changed)]


def changed_addresses(now: Iterable[Object], backup: Backup) -> List[str]:
    """Returns the titles of Services whose addresses differ; a deleted Service does not count."""
    addresses = {key_of(obj): handover.addresses_of(obj) for obj in now}
    return [
        title(key)
        for key, obj in backup.services.items()
        if addresses.get(key, handover.addresses_of(obj)) != handover.addresses_of(obj)
    ]


def key_of(obj: Object) -> Key:
    """Returns kind, namespace (empty if none) and name."""
    meta = obj["metadata"]
    return obj["kind"], meta.get("namespace") or "", meta["name"]


def title(key: Key) -> str:
    """Returns the name of an object for messages: `Kind namespace/name`."""
    kind, namespace, name = key
    return f"{kind} " + "/".join(filter(None, (namespace, name)))


def _comparable(obj: Object) -> Object:
    return handover.comparable(obj) if obj["kind"] == "Service" else clean(obj)


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()

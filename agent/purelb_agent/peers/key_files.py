# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The keys in the mounted Secret, read again when they have been rotated, while agents run.

Keys that cannot be used leave the last good ones in use: an agent without keys would lose its
addresses in an outage of the API.
"""

from __future__ import annotations

from pathlib import Path

from purelb.core.errors import SettingError
from purelb.core.holding.peer_keys import NEXT, PREVIOUS, SIGNING, PeerKeys, parse_keys
from purelb.core.names import PEER_SECRET
from purelb_agent.runtime import log

_Version = tuple[tuple[int, int] | None, ...]


class PeerKeyFiles:
    """The folder of the mounted Secret, and the keys that were read there last."""

    def __init__(self, folder: Path, keys: PeerKeys, version: _Version) -> None:
        self._folder = folder
        self._keys = keys
        self._version: _Version | None = version
        self._error = ""

    @classmethod
    def open(cls, folder: Path) -> PeerKeyFiles | None:
        """Read the keys for the first time; None without a key, SettingError if one is invalid."""
        keys, version = _read(folder)
        return None if keys is None else cls(folder, keys, version)

    def current(self) -> PeerKeys:
        """Return the present keys; an error is logged once."""
        if _version(self._folder) == self._version:
            return self._keys
        self._version = None
        try:
            keys, version = _read(self._folder)
        except SettingError as error:
            return self._kept(str(error))
        if keys is None:
            return self._kept(f"it has no {SIGNING!r} any more: put one into {PEER_SECRET}")
        if keys != self._keys or self._error:
            log.info("peerKeysRead", signs=keys.ids[0], accepts=",".join(keys.ids))
        self._keys, self._version, self._error = keys, version, ""
        return keys

    def _kept(self, error: str) -> PeerKeys:
        if error != self._error:
            log.warning("peerKeysKept", signs=self._keys.ids[0], folder=self._folder, error=error)
        self._error = error
        return self._keys


def _read(folder: Path) -> tuple[PeerKeys | None, _Version]:
    """Return the keys of one version of the Secret, and which one.

    The kubelet replaces all files at once, by a link to another folder. Files of two versions must
    not be mixed, so they are read again if they have changed meanwhile.
    """
    while True:
        version = _version(folder)
        files = {name: folder / name for name in (SIGNING, NEXT, PREVIOUS)}
        try:
            data = {name: file.read_bytes() for name, file in files.items() if file.exists()}
        except OSError as error:
            if version == _version(folder):
                raise SettingError(
                    f"{folder} cannot be read ({error.strerror or error}): mount the Secret "
                    f"{PEER_SECRET} there, as the role purelb_install does"
                ) from error
            continue
        if version == _version(folder):
            return parse_keys(data), version


def _version(folder: Path) -> _Version:
    """Return what each change of the files changes: their inodes and times of modification."""
    return tuple(_status(folder / name) for name in (SIGNING, NEXT, PREVIOUS))


def _status(file: Path) -> tuple[int, int] | None:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns

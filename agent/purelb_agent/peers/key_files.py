# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The keys in the mounted Secret, read at each use, because they are rotated while agents run.

Keys that cannot be used leave the last good ones in use: an agent without keys would lose its
addresses in an outage of the API.
"""

from __future__ import annotations

from pathlib import Path

from purelb.core.errors import SettingError
from purelb.core.holding.peer_keys import NEXT, PREVIOUS, SIGNING, PeerKeys, parse_keys
from purelb.core.names import PEER_SECRET
from purelb_agent.runtime import log


class PeerKeyFiles:
    """The folder of the mounted Secret, and the keys that were read there last."""

    def __init__(self, folder: Path, keys: PeerKeys) -> None:
        self._folder = folder
        self._keys = keys
        self._error = ""

    @classmethod
    def open(cls, folder: Path) -> PeerKeyFiles | None:
        """Read the keys for the first time; None without a key, SettingError if one is invalid."""
        keys = _read(folder)
        return None if keys is None else cls(folder, keys)

    def current(self) -> PeerKeys:
        """Return the present keys; an error is logged once."""
        try:
            keys = _read(self._folder)
        except SettingError as error:
            return self._kept(str(error))
        if keys is None:
            return self._kept(f"it has no {SIGNING!r} any more: put one into {PEER_SECRET}")
        if keys != self._keys or self._error:
            log.info("peerKeysRead", signs=keys.ids[0], accepts=",".join(keys.ids))
        self._keys, self._error = keys, ""
        return keys

    def _kept(self, error: str) -> PeerKeys:
        if error != self._error:
            log.warning("peerKeysKept", signs=self._keys.ids[0], folder=self._folder, error=error)
        self._error = error
        return self._keys


def _read(folder: Path) -> PeerKeys | None:
    """Return the keys of one version of the Secret.

    The kubelet replaces all files at once, by a link to another folder. Files of two versions must
    not be mixed, so they are read again if the link has changed meanwhile.
    """
    while True:
        version = _version(folder)
        files = {name: version / name for name in (SIGNING, NEXT, PREVIOUS)}
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
            return parse_keys(data)


def _version(folder: Path) -> Path:
    """Return the folder that the kubelet's link leads to."""
    return (folder / SIGNING).resolve().parent

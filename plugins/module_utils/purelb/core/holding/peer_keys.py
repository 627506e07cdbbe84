# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The keys that agents sign questions to their peers with, and the steps of their rotation.

All agents read one Secret: `key` signs, `next` and `previous` are only accepted. Agents read it at
different times. So a new key is accepted everywhere (`next`) before an agent signs with it (`key`),
and the old one is accepted (`previous`) until no agent signs with it. Each agent publishes the ids
of its keys, by which the next step waits for all of them. The Secret itself says which step is
next, so an interrupted rotation resumes where it was. Nothing here reads a file or generates a key.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from enum import Enum
from typing import Dict, Mapping, Optional, Tuple

from ..errors import SettingError
from ..names import PEER_SECRET

SIGNING, NEXT, PREVIOUS = "key", "next", "previous"
_SHORTEST_KEY = 16
_ID_LENGTH = 8
# Sets the hash apart from any other use of the key.
_ID_DOMAIN = b"purelb.io/peer-keys\0"


def key_id(key: bytes) -> str:
    """Return a short name of a key, which does not reveal the key."""
    return hashlib.sha256(_ID_DOMAIN + key).hexdigest()[:_ID_LENGTH]


@dataclass(frozen=True)
class PeerKeys:
    """An agent's keys: one signs its questions, all are accepted."""

    signing: bytes = field(repr=False)
    others: Tuple[bytes, ...] = field(default=(), repr=False)

    @property
    def accepted(self) -> Tuple[bytes, ...]:
        """Every key that a question may be signed with."""
        return (self.signing, *self.others)

    @property
    def ids(self) -> Tuple[str, ...]:
        """The ids of all keys; the first one signs."""
        return tuple(map(key_id, self.accepted))


def parse_keys(data: Mapping[str, bytes]) -> Optional[PeerKeys]:
    """Return the keys in the Secret's data, None without `key`; SettingError if one is too short.

    Empty entries count as missing.
    """
    for name in (SIGNING, NEXT, PREVIOUS):
        if 0 < len(data.get(name, b"")) < _SHORTEST_KEY:
            raise SettingError(
                f"{name!r} has {len(data[name])} bytes, too few to be secure: give {name!r} of the "
                f"Secret {PEER_SECRET} {_SHORTEST_KEY} random bytes or more"
            )
    if not data.get(SIGNING):
        return None
    others = (data[name] for name in (NEXT, PREVIOUS) if data.get(name))
    return PeerKeys(data[SIGNING], tuple(others))


class RotationStep(str, Enum):
    """A change of the Secret."""

    ADD = "add"
    SWITCH = "switch"
    REMOVE = "remove"


def next_step(data: Mapping[str, bytes]) -> RotationStep:
    """Return the step that follows; ADD begins a new rotation."""
    if data.get(NEXT):
        return RotationStep.SWITCH
    return RotationStep.REMOVE if data.get(PREVIOUS) else RotationStep.ADD


def after_step(data: Mapping[str, bytes], step: RotationStep, *, new: bytes) -> Dict[str, bytes]:
    """Return the Secret's keys after a step; `new` is the key that ADD adds."""
    if step is RotationStep.ADD:
        return {SIGNING: data[SIGNING], NEXT: new}
    if step is RotationStep.SWITCH:
        return {SIGNING: data[NEXT], PREVIOUS: data[SIGNING]}
    return {SIGNING: data[SIGNING]}


def not_ready(
    keys: PeerKeys, published: Mapping[str, Tuple[str, ...]]
) -> Dict[str, Tuple[str, ...]]:
    """Return the nodes that do not use exactly these keys yet, with the ids that they publish."""
    return {node: ids for node, ids in sorted(published.items()) if ids != keys.ids}

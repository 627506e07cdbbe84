# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Settings of the programs, parsed once from a mapping (the environment) and validated together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping, Optional

from .errors import SettingError

_LIMIT = re.compile(r"(?P<number>[1-9]\d{0,8})(?P<percent>%)?")
_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>ms|s|m)?")
# A shorter Lease leaves no time to renew, as the kernel removes addresses up to a second late.
_SHORTEST_LEASE = 5.0
_LAST_PORT = 65535
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


def parse_duration(text: str, name: str) -> float:
    """Return the seconds of `10s`, `500ms`, `1m` or a plain number of seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise SettingError(f"{name}={text!r} is not a duration; write for example 10s, 500ms or 10")
    return float(match["number"]) * _UNIT_SECONDS[match["unit"]]


def parse_switch(mapping: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Return whether an `on`/`off` setting is on."""
    text = mapping.get(name, "").strip()
    if text not in ("", "on", "off"):
        raise SettingError(f"{name}={text!r} is not a switch; write on or off")
    return text == "on" if text else default


def parse_port(mapping: Mapping[str, str], name: str, *, default: int) -> int:
    """Return the number of a port; 0 is one that is not used."""
    text = mapping.get(name, "").strip()
    if text and not (text.isascii() and text.isdigit() and int(text) <= _LAST_PORT):
        raise SettingError(f"{name}={text!r} is not a port; write a number up to {_LAST_PORT}")
    return int(text) if text else default


@dataclass(frozen=True)
class LeaseTiming:
    """The timing of a node's Lease, in seconds.

    `duration`: how long a Lease is valid after a renewal. A longer one means fewer API requests and
    a slower takeover after a crash. `renew_deadline`: how long after its last successful renewal a
    node still announces; the rest of `duration` is its time to withdraw before its peers may take
    over, and how long a renewal may take. `retry_period`: longest pause between failed renewals.
    """

    duration: float = 10.0
    renew_deadline: float = 7.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        """Raise a SettingError for timings with which two nodes could hold one address."""
        if self.duration < _SHORTEST_LEASE or self.duration != int(self.duration):
            raise SettingError(
                "PURELB_LEASE_DURATION must be whole seconds, 5 or more: a Lease has no fractions, "
                "and the kernel removes addresses up to a second late"
            )
        if not self.renew_deadline < self.duration:
            raise SettingError(
                "PURELB_RENEW_DEADLINE must be shorter than PURELB_LEASE_DURATION "
                f"({self.renew_deadline:g}s, {self.duration:g}s): a node withdraws in between"
            )
        if not 0 < self.retry_period < self.renew_deadline:
            raise SettingError(
                "PURELB_RETRY_PERIOD must be shorter than PURELB_RENEW_DEADLINE "
                f"({self.retry_period:g}s, {self.renew_deadline:g}s): or there is no second attempt"
            )

    @property
    def renew_period(self) -> float:
        """Seconds between successful renewals: half the duration, so that one may fail."""
        return self.duration / 2

    @classmethod
    def parse(cls, mapping: Mapping[str, str]) -> LeaseTiming:
        """Parse PURELB_LEASE_DURATION, PURELB_RENEW_DEADLINE and PURELB_RETRY_PERIOD."""

        def seconds(name: str, default: float) -> float:
            return parse_duration(mapping[name], name) if mapping.get(name) else default

        return cls(
            seconds("PURELB_LEASE_DURATION", cls.duration),
            seconds("PURELB_RENEW_DEADLINE", cls.renew_deadline),
            seconds("PURELB_RETRY_PERIOD", cls.retry_period),
        )


@dataclass(frozen=True)
class EvictionLimit:
    """How many Nodes may have the eviction taint at a time: a number, or percent of all Nodes."""

    value: int = 34
    is_percent: bool = True

    def nodes(self, count: int) -> int:
        """Return the number for a cluster with this many Nodes: rounded down, at least one."""
        return max(1, count * self.value // 100) if self.is_percent else self.value

    @classmethod
    def parse(cls, mapping: Mapping[str, str]) -> EvictionLimit:
        """Parse PURELB_EVICTION_LIMIT, for example `34%` or `2`."""
        text = mapping.get("PURELB_EVICTION_LIMIT", "").strip()
        if not text:
            return cls()
        match = _LIMIT.fullmatch(text)
        if match is None:
            raise SettingError(
                f"PURELB_EVICTION_LIMIT={text!r} is neither a number of nodes nor a percentage of "
                "all nodes; write for example 34% or 2"
            )
        return cls(int(match["number"]), is_percent=match["percent"] is not None)


@dataclass(frozen=True)
class AnnounceConfig:
    """How a gained address is announced on the segment: immediately, then `count` times more.

    `delay` and `interval` are seconds. The delay lets the previous holder withdraw first; the
    repetitions are for switches that drop single frames. `verify`: send each frame only if the
    address is still held; otherwise a sequence always runs to its end.
    """

    enabled: bool = True
    count: int = 3
    interval: float = 0.5
    delay: float = 0.2
    verify: bool = True


@dataclass(frozen=True)
class AddressConfig:
    """How an address is added to an interface, in seconds; a `valid_lifetime` of 0 is permanent.

    `preferred_lifetime`: for how long the node may choose it as the source of its own traffic; None
    is never for IPv6, and the valid lifetime for IPv4, where the kernel does not look at it.
    """

    valid_lifetime: int = 300
    preferred_lifetime: Optional[int] = None
    no_prefix_route: bool = True


# On the dummy interface: permanent, and with the prefix route that a routing daemon redistributes.
ON_DUMMY = AddressConfig(0, no_prefix_route=False)


def required(mapping: Mapping[str, str], name: str, remediation: str) -> str:
    """Return the value of a setting without a default; the error names the remedy."""
    value = mapping.get(name, "")
    if not value:
        raise SettingError(f"{name} is not set; {remediation}")
    return value

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Settings of the programs, read once from a mapping (the environment) and checked together."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Mapping

from .errors import SettingError

_DURATION = re.compile(r"(?P<number>\d+(\.\d+)?)(?P<unit>ms|s|m)?")
# Less leaves no time for a renewal, as the kernel takes addresses away up to a second late.
_SHORTEST_LEASE = 5.0
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, None: 1.0}


def parse_duration(text: str, name: str) -> float:
    """Seconds of `10s`, `500ms`, `1m` or plain seconds."""
    match = _DURATION.fullmatch(text.strip())
    if match is None:
        raise SettingError(f"{name}={text!r} is no duration; write for example 10s, 500ms or 10")
    return float(match["number"]) * _UNIT_SECONDS[match["unit"]]


def parse_switch(mapping: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Whether a setting that knows `on` and `off` is on."""
    text = mapping.get(name, "").strip()
    if text not in ("", "on", "off"):
        raise SettingError(f"{name}={text!r} is no switch; write on or off")
    return text == "on" if text else default


@dataclass(frozen=True)
class LeaseTiming:
    """How a node's Lease is kept, in seconds.

    `duration`: how long a Lease counts after a renewal. Longer means fewer API requests and a
    slower takeover after a crash. `renew_deadline`: how long after its last good renewal a node
    still announces; what is left until `duration` is the time it has to withdraw before its peers
    may take over. `retry_period`: pause between failed renewals, and the time each attempt gets.
    """

    duration: float = 10.0
    renew_deadline: float = 7.0
    retry_period: float = 2.0

    def __post_init__(self) -> None:
        """Refuse timings with which two nodes could hold one address."""
        if self.duration < _SHORTEST_LEASE or self.duration != int(self.duration):
            raise SettingError(
                "PURELB_LEASE_DURATION must be whole seconds, 5 or more: a Lease has no fractions, "
                "and the kernel takes addresses away up to a second late"
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
        """Seconds between good renewals: half the duration, so that one may fail."""
        return self.duration / 2

    @classmethod
    def parse(cls, mapping: Mapping[str, str]) -> LeaseTiming:
        """Read PURELB_LEASE_DURATION, PURELB_RENEW_DEADLINE and PURELB_RETRY_PERIOD."""

        def seconds(name: str, default: float) -> float:
            return parse_duration(mapping[name], name) if mapping.get(name) else default

        return cls(
            seconds("PURELB_LEASE_DURATION", cls.duration),
            seconds("PURELB_RENEW_DEADLINE", cls.renew_deadline),
            seconds("PURELB_RETRY_PERIOD", cls.retry_period),
        )


@dataclass(frozen=True)
class AnnounceConfig:
    """How a gained address is told to the segment: once at once, then this sequence.

    `delay` and `interval` are seconds. The delay lets the loser withdraw first; the repeats are for
    switches that drop or ignore single frames. `verify`: each frame only if the address is still
    held; without it a sequence that has begun goes on to its end.
    """

    enabled: bool = True
    count: int = 3
    interval: float = 0.5
    delay: float = 0.2
    verify: bool = True


@dataclass(frozen=True)
class AddressConfig:
    """How an address is put on an interface. Seconds; a `valid_lifetime` of 0 has no end."""

    valid_lifetime: int = 300
    preferred_lifetime: int = 300
    no_prefix_route: bool = True


# On the dummy interface: for ever, and with the route that a routing daemon hands on.
ON_DUMMY = AddressConfig(0, 0, no_prefix_route=False)


def required(mapping: Mapping[str, str], name: str, remediation: str) -> str:
    """Value of a setting that has no default; the error says how to provide it."""
    value = mapping.get(name, "")
    if not value:
        raise SettingError(f"{name} is not set; {remediation}")
    return value

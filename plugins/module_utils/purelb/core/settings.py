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
# A shorter Lease leaves no time to renew; nor does one of less than five seconds where the kernel
# removes addresses up to a second late.
_SHORTEST, _SHORTEST_LIFETIMES = 2.0, 5.0
# Nor does a node count for longer by what is written in its name, with a token that was stolen.
LONGEST_DURATION = 60.0
# Leases that are timed by themselves last so long: one second more for each ten nodes, and a
# multiple of what a write takes.
_AUTO_SHORTEST, _AUTO_LONGEST, _NODES_A_SECOND, _WRITES = 3.0, 10.0, 10, 4
_MANY_NODES = 1000
# The part of a Lease in which its node announces. Without a fence that is exact, the kernel needs
# the rest.
_TO_WITHDRAW, _TO_WITHDRAW_EXACT = 0.7, 0.9
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
        is_valid = _SHORTEST <= self.duration <= LONGEST_DURATION
        if not is_valid or self.duration != int(self.duration):
            raise SettingError(
                "PURELB_LEASE_DURATION must be auto, or whole seconds, 2 to 60: a Lease has no "
                "fractions, a renewal takes its time, and so does the takeover from a lost node"
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
        """Seconds between successful renewals.

        Half the duration, so that one may fail; of a short one less, as attempts that follow need
        two seconds.
        """
        return max(self.duration / 4, min(self.duration / 2, self.duration - 2))


@dataclass(frozen=True)
class TimingChoice:
    """How nodes time their Leases, as the installation says it, in seconds; None: by themselves.

    The other two are given only with a duration.
    """

    duration: Optional[float] = None
    renew_deadline: Optional[float] = None
    retry_period: Optional[float] = None

    def __post_init__(self) -> None:
        """Raise a SettingError for timings with which two nodes could hold one address."""
        if self.duration is None and (self.renew_deadline, self.retry_period) != (None, None):
            raise SettingError(
                "PURELB_RENEW_DEADLINE and PURELB_RETRY_PERIOD must be auto where "
                "PURELB_LEASE_DURATION is: they depend on it"
            )
        for is_exact in (True, False):
            self.timing(nodes=1, is_exact=is_exact)

    def timing(self, *, nodes: int, is_exact: bool, took: float = 0.0) -> LeaseTiming:
        """Return the timing of a node's next renewal.

        `nodes`: how many renew Leases. `is_exact`: its addresses fall silent exactly when its right
        ends. If not, their lifetimes end it, which the kernel counts in whole seconds, and up to a
        second late: that needs longer ones. `took`: how long the last renewal took.
        """
        duration = seconds_for(nodes, took) if self.duration is None else self.duration
        if not is_exact and duration < _SHORTEST_LIFETIMES:
            return _usual(_SHORTEST_LIFETIMES, is_exact=False)
        usual = _usual(duration, is_exact=is_exact)
        deadline = usual.renew_deadline if self.renew_deadline is None else self.renew_deadline
        retry = usual.retry_period if self.retry_period is None else self.retry_period
        return LeaseTiming(duration, deadline, retry)

    @property
    def longest(self) -> LeaseTiming:
        """The longest that it comes to."""
        return self.timing(nodes=_MANY_NODES, is_exact=False)

    @classmethod
    def parse(cls, mapping: Mapping[str, str]) -> TimingChoice:
        """Parse PURELB_LEASE_DURATION, PURELB_RENEW_DEADLINE and PURELB_RETRY_PERIOD."""

        def seconds(name: str) -> Optional[float]:
            text = mapping.get(name, "").strip()
            return None if text in ("", "auto") else parse_duration(text, name)

        return cls(
            seconds("PURELB_LEASE_DURATION"),
            seconds("PURELB_RENEW_DEADLINE"),
            seconds("PURELB_RETRY_PERIOD"),
        )


def seconds_for(nodes: int, took: float) -> float:
    """Return for how long a Lease is to be valid where so many nodes renew theirs.

    So all of them together write about twenty a second, and no more than thirty, up to a hundred
    nodes; more write in proportion. Where writes take long, there is to be time for some.
    """
    # Whole seconds, rounded up.
    by_size, by_writes = -(-nodes // _NODES_A_SECOND), -(-_WRITES * took // 1)
    return float(min(_AUTO_LONGEST, max(_AUTO_SHORTEST, by_size, by_writes)))


def _usual(duration: float, *, is_exact: bool) -> LeaseTiming:
    """Return the usual timing of Leases that are valid for so long."""
    deadline = (_TO_WITHDRAW_EXACT if is_exact else _TO_WITHDRAW) * duration
    return LeaseTiming(duration, deadline, duration / 5)


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

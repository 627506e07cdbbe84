# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Announces addresses on the wire as they become usable here: the frames, and when they are due.

Called by the loop in each of its cycles, and owned by it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from purelb.core.model import Address, Link
from purelb.core.node.announcing import Announcements
from purelb.core.node.packets import build_announcement
from purelb.core.node.snapshot import Place
from purelb.core.settings import AnnounceConfig
from purelb_agent.node.conflicts import ConflictListener
from purelb_agent.node.metrics import AnnouncementMetrics
from purelb_agent.node.sockets import FrameSender
from purelb_agent.runtime import log


class Announcer:
    """What is usable on this node, and the announcements of it that are still to come."""

    def __init__(self, metrics: AnnouncementMetrics, sentinel: ConflictListener) -> None:
        self._metrics = metrics
        self._sentinel = sentinel
        self._sender = FrameSender()
        self._announcements = Announcements()
        self._usable: frozenset[Place] = frozenset()

    @property
    def next_at(self) -> float | None:
        """When the next frame is due."""
        return self._announcements.next_at

    def announce(
        self,
        usable: frozenset[Place],
        fresh: set[Place],
        links: Iterable[Link],
        config: AnnounceConfig,
        *,
        now: float,
    ) -> None:
        """Announce what became usable or was put there `fresh`, and go on with what is under way.

        An address that is no longer usable is announced no more, unless that is not to be verified.
        """
        gained = (usable - self._usable) | (usable & fresh)
        self._usable = usable
        if gained:
            self._announcements = self._announcements.gained(gained, config, now=now)
        self._announcements, due = self._announcements.due(usable, config, now=now)
        by_link: dict[int, list[Address]] = defaultdict(list)
        for index, address in due:
            by_link[index].append(address)
        for link in links:
            if link.index in by_link:
                self._send(link, by_link[link.index])

    def ensure_current(self, held: frozenset[Place], links: Iterable[Link], *, now: float) -> None:
        """Look out for other hosts that have what this node holds."""
        self._sentinel.update(held, links, now=now)

    def close(self) -> None:
        """Announce nothing any more."""
        self._sender.close()

    def _send(self, link: Link, addresses: list[Address]) -> None:
        frames = [frame for a in addresses for frame in build_announcement(link.mac, a)]
        four = sum(1 for a in addresses if a.version == 4)  # noqa: PLR2004 - the IP version
        six = len(addresses) - four
        try:
            self._sender.send(link.name, frames)
        except OSError as problem:
            self._metrics.count_failed(ipv4=four, ipv6=six)
            log.warning("announceFailed", interface=link.name, error=str(problem))
        else:
            self._metrics.count_sent(ipv4=four, ipv6=six)

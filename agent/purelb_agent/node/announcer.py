# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Announces addresses on their segment when they become usable on this node.

Sends the frames; when each is due is decided in core/node/announcing. The reconciler owns it and
calls it in each of its cycles.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from purelb.core.model import Address, Link
from purelb.core.node.announcing import Announcements
from purelb.core.node.left import Place
from purelb.core.node.packets import build_announcement
from purelb.core.settings import AnnounceConfig
from purelb_agent.node.metrics import AnnouncementMetrics
from purelb_agent.node.sockets import FrameSender
from purelb_agent.runtime import log


class Announcer:
    """The addresses that are usable on this node, and their announcements still to be sent."""

    def __init__(self, metrics: AnnouncementMetrics, *, sender: FrameSender) -> None:
        self._metrics = metrics
        self._sender = sender
        self._announcements = Announcements()
        self._usable: frozenset[Place] = frozenset()

    @property
    def next_at(self) -> float | None:
        """When the next announcement is due; None if none is pending."""
        return self._announcements.next_at

    def announce(
        self,
        usable: frozenset[Place],
        fresh: set[Place],
        links: Iterable[Link],
        config: AnnounceConfig,
        *,
        again: Iterable[Place] = (),
        now: float,
    ) -> None:
        """Start announcing what became usable or is `fresh`, and send what is due or goes `again`.

        The pending announcements of an address that is no longer usable are dropped, unless the
        configuration switches that check off (`verify`).
        """
        gained = (usable - self._usable) | (usable & fresh)
        self._usable = usable
        if gained:
            self._announcements = self._announcements.gained(gained, config, now=now)
        self._announcements, due = self._announcements.due(usable, config, now=now)
        by_link: dict[int, list[Address]] = defaultdict(list)
        if config.enabled:
            due += [place for place in again if place in usable and place not in due]
        for index, address in due:
            by_link[index].append(address)
        for link in links:
            if link.index in by_link and link.is_ethernet:
                self._send(link, by_link[link.index])

    def _send(self, link: Link, addresses: list[Address]) -> None:
        frames = [frame for a in addresses for frame in build_announcement(link.mac, a)]
        ipv4 = sum(1 for a in addresses if a.version == 4)  # noqa: PLR2004 - the IP version
        ipv6 = len(addresses) - ipv4
        try:
            self._sender.send(link.name, frames)
        except OSError as error:
            self._metrics.count_failed(ipv4=ipv4, ipv6=ipv6)
            log.warning("announceFailed", interface=link.name, error=str(error))
        else:
            self._metrics.count_sent(ipv4=ipv4, ipv6=ipv6)

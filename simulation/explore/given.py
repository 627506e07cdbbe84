# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which Service has which addresses since when: what is given twice, lost, or not given at all."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from ipaddress import ip_address

from purelb.core.allocation.duplicates import NEW_FOR
from purelb.core.model import Address
from purelb.core.names import SHARING_ANNOTATION
from simulation.api.objects import Json, field_selector
from simulation.api.server import Watch
from simulation.cluster import Cluster
from simulation.explore.spans import Span, note
from simulation.manifests import KINDS, ingress
from simulation.time.timeline import MICROSECONDS

_VERSIONS = {"IPv4": 4, "IPv6": 6}


class Given:
    """Follows the Services of a cluster from now on; times are in seconds after that.

    `addresses`: all on segments that a Service has had. `twice`: what two Services had that do not
    share it. `lost`: what a Service lost that stayed one with an address. `free`: when an address
    belonged to no Service. `waited`: when a Service had not all its addresses, by its name.
    """

    def __init__(self, cluster: Cluster, new: Callable[[Address], None]) -> None:
        self._cluster, self._new = cluster, new
        self.addresses: dict[Address, None] = dict.fromkeys(self._local(cluster.addresses()))
        self._began = cluster.timeline.now
        self.twice: dict[str, None] = {}
        self.lost: dict[str, None] = {}
        self.free: dict[Address, list[Span]] = defaultdict(list)
        self.waited: dict[str, list[Span]] = defaultdict(list)
        # By UID: the addresses of each Service that is to have some, by the version of IP.
        self._had: dict[str, dict[int, Address]] = {}
        self._version = cluster.api.objects.version
        every = field_selector("")
        cluster.api.follow(Watch(KINDS["services"], "", every, self._changed, self._ended))
        self._look()

    def _changed(self, line: bytes) -> None:
        self._see(int(json.loads(line)["object"]["metadata"]["resourceVersion"]))

    def _ended(self) -> None:
        # A Service that a backup does not have is gone without a change.
        version = self._cluster.api.objects.version
        if version < self._version:
            self._see(version)

    def _see(self, version: int) -> None:
        if version <= self._version:
            # The store was restored, so what it says is older than what was seen.
            self._had.clear()
        self._version = version
        self._look()

    def _look(self) -> None:
        services = [s.body for s in self._cluster.api.objects.of_kind(KINDS["services"], "")]
        owners: dict[Address, list[Json]] = defaultdict(list)
        for body in services:
            for entry in ingress(body):
                owners[ip_address(entry["ip"])].append(body["metadata"])
        for address in self._local(owners):
            if address not in self.addresses:
                self.free[address].append((0.0, self._now))
                self._new(address)
            self.addresses[address] = None
        for address, owned in owners.items():
            keys = {metadata.get("annotations", {}).get(SHARING_ANNOTATION) for metadata in owned}
            if len(owned) > 1 and (None in keys or len(keys) > 1):
                names = " and ".join(metadata["name"] for metadata in owned)
                self.twice[f"{address} was given to {names}"] = None
        for address in self.addresses:
            note(self.free[address], self._now, is_so=address not in owners)
        waiting = {body["metadata"]["name"] for body in services if self._compare(body)}
        for name in waiting | self.waited.keys():
            note(self.waited[name], self._now, is_so=name in waiting)

    def _local(self, addresses: Iterable[Address]) -> list[Address]:
        return [each for each in addresses if self._cluster.number_of(each) is not None]

    def _compare(self, body: Json) -> bool:
        """Note what a Service has lost; returns whether it waits for an address."""
        uid, spec = body["metadata"]["uid"], body["spec"]
        if spec["type"] != "LoadBalancer":
            self._had.pop(uid, None)
            return False
        texts = (entry["ip"] for entry in ingress(body))
        has: dict[int, Address] = {address.version: address for address in map(ip_address, texts)}
        for version, address in self._had.get(uid, {}).items():
            if has.get(version) != address and not self._is_exchanged(address):
                instead = has.get(version, "no address")
                self.lost[f"{body['metadata']['name']} has {instead}, not {address}"] = None
        self._had[uid] = has
        return any(_VERSIONS[family] not in has for family in spec["ipFamilies"])

    def _is_exchanged(self, address: Address) -> bool:
        """Whether an address was given a moment ago, and its range taken away since.

        Then the Service gets another one if no node announces it (docs/allocation.md).
        """
        was_free = self.free[address]
        is_new = bool(was_free) and self._now - was_free[-1][1] < NEW_FOR
        return is_new and not any(int(address) in numbers for numbers in self._ranges(address))

    def _ranges(self, address: Address) -> Iterator[range]:
        """Yield the ranges of all local groups, of the family of an address."""
        for stored in self._cluster.api.objects.of_kind(KINDS["groups"], ""):
            for pool in stored.body["spec"].get("local", {}).get(f"v{address.version}pools", ()):
                first, _dash, last = pool["pool"].partition("-")
                yield range(int(ip_address(first)), int(ip_address(last)) + 1)

    @property
    def _now(self) -> float:
        return (self._cluster.timeline.now - self._began) / MICROSECONDS

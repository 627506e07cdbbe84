# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The nodes with a ready endpoint of each Service, kept up to date from EndpointSlices."""

from __future__ import annotations

from collections import defaultdict
from typing import Dict, FrozenSet, Mapping, Optional, Set

from ..model import EndpointSlice, ServiceKey

# Namespace and name of an EndpointSlice.
SliceKey = ServiceKey


class EndpointIndex:
    """Nodes by Service. `nodes` is replaced when its content changes, and never modified."""

    def __init__(self) -> None:
        self.nodes: Mapping[ServiceKey, FrozenSet[str]] = {}
        self._slices: Dict[SliceKey, EndpointSlice] = {}
        self._of_service: Dict[ServiceKey, Set[SliceKey]] = defaultdict(set)

    def change(self, slices: Mapping[SliceKey, Optional[EndpointSlice]]) -> None:
        """Apply the current state of these slices; None means deleted."""
        touched: Set[ServiceKey] = set()
        for key, current in slices.items():
            before = self._slices.pop(key, None)
            if before is not None:
                self._of_service[before.service].discard(key)
                touched.add(before.service)
            if current is not None:
                self._slices[key] = current
                self._of_service[current.service].add(key)
                touched.add(current.service)
        nodes = dict(self.nodes)
        for service in touched:
            found = frozenset(
                node for key in self._of_service[service] for node in self._slices[key].nodes
            )
            if found:
                nodes[service] = found
            else:
                nodes.pop(service, None)
            if not self._of_service[service]:
                del self._of_service[service]
        if nodes != self.nodes:
            self.nodes = nodes

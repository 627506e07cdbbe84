# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Which groups must let Services of several namespaces share an address, as v1 does. Pure."""

from __future__ import annotations

from collections import defaultdict
from typing import Dict, Iterable, List

from ..audit.cluster_reader import valid_group
from ..core.api import codec
from ..core.model import Address, Service
from ..module.manifests import Object
from . import handover


def with_sharing(bodies: Iterable[Object], services: Iterable[Object]) -> List[Object]:
    """Returns v2 objects, groups with `sharing: cluster` where Services of v1 need it.

    v1 lets Services share an address by key wherever they are. In v2 those of one namespace do,
    unless the group says otherwise. Nothing that runs may change.
    """
    users: Dict[Address, List[Service]] = defaultdict(list)
    for service in services:
        if handover.is_of_v1(service):
            record = codec.service_of(service)
            for address in record.addresses:
                users[address].append(record)
    shared = {
        address: found
        for address, found in users.items()
        if len({record.key.namespace for record in found}) > 1
    }
    return [
        {**body, "spec": {**body["spec"], "sharing": "cluster"}} if _gave(body, shared) else body
        for body in bodies
    ]


def _gave(body: Object, shared: Dict[Address, List[Service]]) -> bool:
    """Whether an object is the group of one of these addresses."""
    group = valid_group(body) if body["kind"] == "ServiceGroup" else None
    return group is not None and any(
        # The ranges of a NetBox are not in the group.
        group.range_of(address) or any(record.allocated_from == group.name for record in records)
        for address, records in shared.items()
    )

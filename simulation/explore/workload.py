# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The clusters from which schedules begin: how many nodes, how they are built, which Services."""

from __future__ import annotations

from dataclasses import replace

from purelb.core.names import ADDRESSES_ANNOTATION, SERVICE_GROUP_ANNOTATION, SHARING_ANNOTATION
from simulation import users
from simulation.cluster import Cluster
from simulation.shape import AUTO, LONG, PLAIN, Fenced, Other, Shape

# Clusters at work from which schedules begin, each with phases and delays of its own.
CLUSTERS = 48
_SIZES = (3, 2, 3, 4, 3, 5)
# Those that are built in another way than most, by number or its last digit in base 7 or 8.
_OTHER_SIZES = {10: 1, 34: 1, 22: 4, 38: 5, 27: 12}
_SHAPES = {
    9: Shape(versions=(4,)),
    33: Shape(versions=(4,)),
    17: Shape(versions=(6,)),
    41: Shape(versions=(6,)),
}
_LONG_FIFTHS = 2
_SEVENTHS = {3: Fenced.NONE, 5: Fenced.SECONDS}
_EIGHTHS = {4: Shape(is_varied=True), 6: Shape(Other.LINK), 7: Shape(Other.RACK)}
# What one asks for, and the ranges of other groups.
_ASKED = "172.28.1.240,fd28::2f0"
_OF_OTHER = {"other4": "172.28.2.200-172.28.2.250", "other6": "fd29::200-fd29::2ff"}
_OF_ALL = {"v4": "10.99.0.0/28", "v6": "fd99::/124"}


def size_of(number: int) -> int:
    """Return how many nodes a cluster has."""
    return _OTHER_SIZES.get(number, _SIZES[number % len(_SIZES)])


def shape_of(number: int) -> Shape:
    """Return how a cluster is built."""
    shape = _SHAPES.get(number) or _EIGHTHS.get(number % 8, PLAIN)
    timing = LONG if number % 5 < _LONG_FIFTHS else AUTO
    return replace(shape, fenced=_SEVENTHS.get(number % 7, Fenced.ALL), timing=timing)


def add_services(cluster: Cluster) -> None:
    """Create the Services of a cluster at work, and what they need."""
    shape = cluster.shape
    wishes: dict[str, dict[str, str]] = {}
    if shape.other is not Other.NONE:
        users.put_group(cluster, "other", **_OF_OTHER)
        wishes = {name: {SERVICE_GROUP_ANNOTATION: "other"} for name in ("s4", "s5")}
    if shape.other is Other.LINK:
        users.configure(cluster, "default", local={"interfaces": ["eth1"]})
    if shape.is_varied:
        users.put_remote_group(cluster, "for-all", **_OF_ALL)
        wishes = {
            "s2": {ADDRESSES_ANNOTATION: _ASKED},
            "s3": {SHARING_ANNOTATION: "one of two"},
            "s4": {SHARING_ANNOTATION: "one of two"},
            "s5": {SERVICE_GROUP_ANNOTATION: "for-all"},
        }
        users.add_service(cluster, "of-ipv4", families=("IPv4",))
        users.add_service(cluster, "of-ipv6", families=("IPv6",))
    for number in range(6):
        name = f"s{number}"
        # Each has a port of its own, so that it can share an address.
        ports = [{"port": 80 + number, "protocol": "TCP"}]
        users.add_service(
            cluster, name, families=shape.families, annotations=wishes.get(name), ports=ports
        )
    for number in range(2):
        users.add_local_service(cluster, f"local{number}", list(cluster.nodes)[:1])

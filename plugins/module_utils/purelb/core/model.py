# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Frozen records that cross the borders between the API, the decisions and the kernel.

Nothing here decides or converts. Addresses are `ipaddress` objects in their canonical form; times
are seconds, on the wall clock only where a field's name ends in `_time`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import FrozenSet, Mapping, Optional, Tuple, Union

from .names import LINK_ALIAS

Address = Union[IPv4Address, IPv6Address]
Network = Union[IPv4Network, IPv6Network]


class PoolType(str, Enum):
    """Where an address lives: on the winner alone, or on every node's dummy interface."""

    LOCAL = "local"
    REMOTE = "remote"


class Reason(str, Enum):
    """Why a decision is what it is: one word for log, metric, event and audit alike."""

    ELECTION_WON = "electionWon"
    NOT_WINNER = "notWinner"
    NO_ELIGIBLE_NODES = "noEligibleNodes"
    LEASE_UNHEALTHY = "leaseUnhealthy"
    LEASES_NOT_LISTED = "leasesNotListed"
    NO_LOCAL_INTERFACE = "noLocalInterface"
    NO_SERVICE = "noService"
    NODE_ADDRESS = "nodeAddress"
    NODE_DRAINING = "nodeDraining"
    LEAVING = "leaving"
    ANNOUNCING_NON_LOCAL = "announcingNonLocal"
    NO_LOCAL_ENDPOINT = "noLocalEndpoint"
    NO_DUMMY_INTERFACE = "noDummyInterface"


@dataclass(frozen=True)
class Outage:
    """From when to when a node kept its addresses although nobody could renew a Lease.

    Seconds since the epoch, on the wall clock of the node.
    """

    begin_time: float
    end_time: float


@dataclass(frozen=True)
class Lease:
    """A node's Lease as the API server last showed it."""

    node: str
    subnets: Tuple[Network, ...] = ()
    instance: str = ""
    holder: str = ""
    duration: float = 10.0
    renew_time: Optional[float] = None
    # Changes with every write; only ever compared for equality.
    version: str = ""
    uid: str = ""
    # UID of the Node that owns it.
    node_uid: str = ""
    # The last one that the node held its addresses through.
    outage: Optional[Outage] = None
    # Texts in the subnets annotation that are no CIDR.
    malformed: Tuple[str, ...] = ()


@dataclass(frozen=True)
class ServiceKey:
    """Namespace and name of a Service, printed as the field does."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Announcement:
    """One entry of an announcing annotation: who says that it has the address, and where."""

    node: str
    interface: str
    address: Optional[Address]
    # As it was read: what another node wrote is handed back as it stands.
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.text or f"{self.node},{self.interface},{self.address}"


# Protocol and number of a port that a Service listens on.
Port = Tuple[str, int]


@dataclass(frozen=True)
class Service:
    """What the decisions need to know of a Service."""

    key: ServiceKey
    uid: str = ""
    version: str = ""
    is_load_balancer: bool = True
    load_balancer_class: Optional[str] = None
    families: Tuple[int, ...] = (4,)
    requires_dual_stack: bool = False
    addresses: Tuple[Address, ...] = ()
    group: Optional[str] = None
    allocated_by_us: bool = False
    allocated_from: Optional[str] = None
    pool_type: Optional[PoolType] = None
    skip_dad: bool = False
    # Addresses that its owner asks for by name, and texts in their place that are none.
    explicit: Tuple[Address, ...] = ()
    malformed: Tuple[str, ...] = ()
    sharing_key: Optional[str] = None
    ports: FrozenSet[Port] = frozenset()
    # What the Service itself says about an address of each range; None leaves it to the group.
    multi_pool: Optional[bool] = None
    # Is to be given what it would get if it were new.
    asks_reevaluation: bool = False
    # externalTrafficPolicy Local, and whether that is to stay on a local address.
    is_external_local: bool = False
    allows_local: bool = False
    # Announced, if possible, by a node with a ready endpoint.
    has_affinity: bool = False
    announcing: Mapping[int, Tuple[Announcement, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class EndpointSlice:
    """Part of a Service's endpoints: the nodes of those that are ready."""

    service: ServiceKey
    nodes: FrozenSet[str]


@dataclass(frozen=True)
class AddressRange:
    """Addresses first to last, both included, of one family and one subnet."""

    first: Address
    last: Address
    subnet: Network
    aggregation: Optional[int] = None

    def __contains__(self, address: object) -> bool:
        return (
            isinstance(address, type(self.first)) and self.first <= address <= self.last  # type: ignore[operator]
        )

    @property
    def size(self) -> int:
        """Number of addresses."""
        return int(self.last) - int(self.first) + 1

    @property
    def prefixlen(self) -> int:
        """Prefix length that an address of this range gets on an interface."""
        return self.subnet.prefixlen if self.aggregation is None else self.aggregation

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True)
class NetBoxSource:
    """A NetBox that gives out the reserved addresses of a tenant.

    `aggregation` is the prefix length that they get on an interface; None: the one that NetBox has.
    """

    url: str
    tenant: str
    aggregation: Optional[int] = None


@dataclass(frozen=True)
class ExternalSource:
    """A sidecar of the allocator that gives out addresses, by name and path of its socket."""

    provider: str
    socket: str


Source = Union[NetBoxSource, ExternalSource]


@dataclass(frozen=True)
class ServiceGroup:
    """A pool of addresses and how they are announced.

    With a `source`, something else than the cluster gives out the addresses, and `ranges` are what
    the allocator last wrote about them: an address may be in use before it is there.
    """

    name: str
    namespace: str = ""
    uid: str = ""
    # When it was created, as the API server writes times: the older sorts first.
    created: str = ""
    generation: int = 0
    pool_type: PoolType = PoolType.LOCAL
    ranges: Tuple[AddressRange, ...] = ()
    skip_dad: bool = False
    # A Service gets one address of each range that has nodes, per family.
    multi_pool: bool = False
    # An address comes from the range with the fewest in use, not from the first with a free one.
    balance_pools: bool = False
    # Namespaces that it serves; `enforces` makes them a boundary for both sides.
    namespaces: FrozenSet[str] = frozenset()
    enforces: bool = False
    is_namespace_default: bool = False
    source: Optional[Source] = None

    def range_of(self, address: Address) -> Optional[AddressRange]:
        """The range that holds the address, or None."""
        return next((r for r in self.ranges if address in r), None)

    def prefixlen_of(self, address: Address) -> Optional[int]:
        """Prefix length that an address of the group gets; None where nothing says so (yet)."""
        if isinstance(self.source, ExternalSource):
            return None
        if self.source is not None and self.source.aggregation is not None:
            return min(self.source.aggregation, address.max_prefixlen)
        found = self.range_of(address)
        return found.prefixlen if found else None


@dataclass(frozen=True)
class InterfaceAddress:
    """An address on an interface, as the kernel reports it.

    `expires_at` and `preferred_until` are on the observer's monotonic clock; None is without end.
    """

    link: int
    address: Address
    prefixlen: int
    expires_at: Optional[float] = None
    preferred_until: Optional[float] = None
    no_prefix_route: bool = False
    tentative: bool = False
    dad_failed: bool = False
    deprecated: bool = False

    @property
    def network(self) -> Network:
        """The subnet that the address says it is in."""
        if isinstance(self.address, IPv4Address):
            return IPv4Network((int(self.address), self.prefixlen), strict=False)
        return IPv6Network((int(self.address), self.prefixlen), strict=False)


@dataclass(frozen=True)
class Link:
    """A network interface."""

    index: int
    name: str
    mac: bytes = b""
    is_up: bool = True
    # Free text of the kernel's, by which an agent knows a link that an agent made.
    alias: str = ""
    # IP version -> lowest metric of a default route through it.
    default_metrics: Mapping[int, int] = field(default_factory=dict, hash=False)

    @property
    def is_ours(self) -> bool:
        """Whether an agent made this link."""
        return self.alias == LINK_ALIAS

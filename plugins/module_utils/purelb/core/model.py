# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Frozen records that are exchanged between the API, the decisions and the kernel.

Nothing here decides or converts. Addresses are `ipaddress` objects in canonical form. Times are
seconds; fields whose name ends in `_time` are on the wall clock, all others on a monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import FrozenSet, Mapping, Optional, Tuple, Union

from .names import LINK_ALIAS

Address = Union[IPv4Address, IPv6Address]
Network = Union[IPv4Network, IPv6Network]
MAC_BYTES = 6
# An address in the status of a Node: the name of the Node, the address.
NodeAddress = Tuple[str, Address]


class PoolType(str, Enum):
    """Where an address is held: by the winner only, or on every node's dummy interface."""

    LOCAL = "local"
    REMOTE = "remote"


class Reason(str, Enum):
    """The reason for a decision, spelled alike in log, metric, event and audit."""

    ELECTION_WON = "electionWon"
    NOT_WINNER = "notWinner"
    KEPT = "kept"
    PERMISSION_MISSING = "permissionMissing"
    NO_ELIGIBLE_NODES = "noEligibleNodes"
    LEASE_UNHEALTHY = "leaseUnhealthy"
    LEASES_NOT_LISTED = "leasesNotListed"
    NO_LOCAL_INTERFACE = "noLocalInterface"
    NO_SERVICE = "noService"
    NODE_ADDRESS = "nodeAddress"
    GATEWAY_ADDRESS = "gatewayAddress"
    OUTSIDE_POOLS = "outsidePools"
    FOREIGN_ADDRESS = "foreignAddress"
    NODE_DRAINING = "nodeDraining"
    NODE_EXCLUDED = "nodeExcluded"
    SERVICE_PROXY_DOWN = "serviceProxyDown"
    LEAVING = "leaving"
    ANNOUNCING_NON_LOCAL = "announcingNonLocal"
    NO_LOCAL_ENDPOINT = "noLocalEndpoint"
    NO_DUMMY_INTERFACE = "noDummyInterface"


@dataclass(frozen=True)
class Outage:
    """A time span in which a node held its addresses although no node could renew its Lease.

    Seconds since the epoch, on the node's wall clock.
    """

    begin_time: float
    end_time: float


@dataclass(frozen=True)
class Lease:
    """A node's Lease as last read from the API server."""

    node: str
    subnets: Tuple[Network, ...] = ()
    instance: str = ""
    holder: str = ""
    duration: float = 10.0
    renew_time: Optional[float] = None
    # When it was written last by the API server's clock, in seconds; None: not known.
    written: Optional[float] = None
    # Resource version; changes with every write.
    version: str = ""
    uid: str = ""
    # Names the time in which its renewals followed each other; empty: its agent knows no epochs.
    epoch: str = ""
    # What its agent asks of and answers to those that it does not reach; see holding.messages.
    mail: str = ""
    # Addresses that are in no pool any more, which its agent knew in one; see election.outside.
    outside: str = ""
    # UID of the Node that owns the Lease.
    node_uid: str = ""
    # The last outage during which the node held its addresses.
    outage: Optional[Outage] = None
    # Ids of the keys that its agent accepts from peers; it signs with the first.
    peer_keys: Tuple[str, ...] = ()
    # Addresses that another host has, as its agent found when it put them on an interface.
    duplicates: Tuple[Address, ...] = ()
    # The MAC addresses with which the node answers on its segments.
    macs: Tuple[bytes, ...] = ()
    # Those of its subnets in which the node has deprecated addresses only.
    deprecated: Tuple[Network, ...] = ()
    # The nodes that answer for addresses of this one, too.
    answering: Tuple[str, ...] = ()
    # Addresses in the status of Nodes that are VIPs, as its agent knows; see node.mistaken.
    mistaken: Tuple[NodeAddress, ...] = ()
    # What its agent looks at in elections, and its service proxy's state; see election.members.
    rules: Tuple[str, ...] = ()
    service_proxy: str = ""
    # Whether its addresses fall silent exactly when its right ends, or why not; see fence.gaps.
    fence: str = ""
    # Entries of the subnets annotation that are not valid CIDRs.
    malformed: Tuple[str, ...] = ()

    @property
    def is_released(self) -> bool:
        """Whether its node said in it that it leaves; agents that know no epochs never do."""
        return bool(self.epoch) and not self.holder


@dataclass(frozen=True)
class ServiceKey:
    """Namespace and name of a Service, printed as `namespace/name`."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class Announcement:
    """One entry of an announcing annotation: a node, its interface and the address it holds."""

    node: str
    interface: str
    address: Optional[Address]
    # The original text, so that entries of other nodes are written back unchanged.
    text: str = field(default="", compare=False)

    def __str__(self) -> str:
        return self.text or f"{self.node},{self.interface},{self.address}"


# Protocol and port number of a Service.
Port = Tuple[str, int]


@dataclass(frozen=True)
class Service:
    """The fields of a Service that decisions depend on."""

    key: ServiceKey
    uid: str = ""
    version: str = ""
    # Creation timestamp as text; older ones sort first.
    created: str = ""
    is_load_balancer: bool = True
    # It is being deleted, and a finalizer keeps the object.
    is_terminating: bool = False
    load_balancer_class: Optional[str] = None
    families: Tuple[int, ...] = (4,)
    requires_dual_stack: bool = False
    # What its status has, no matter who wrote it: addresses, and how many entries that are none or
    # that service proxies leave to a host outside.
    addresses: Tuple[Address, ...] = ()
    other_ingress: int = 0
    # The programs that wrote the addresses, and the traffic policy, as the API server noted.
    address_writers: FrozenSet[str] = frozenset()
    policy_writers: FrozenSet[str] = frozenset()
    group: Optional[str] = None
    allocated_by_us: bool = False
    allocated_from: Optional[str] = None
    pool_type: Optional[PoolType] = None
    skip_dad: bool = False
    # Addresses that the owner requests explicitly, and entries that are not addresses.
    explicit: Tuple[Address, ...] = ()
    malformed: Tuple[str, ...] = ()
    sharing_key: Optional[str] = None
    ports: FrozenSet[Port] = frozenset()
    # Whether to allocate one address of each range; None leaves it to the group.
    multi_pool: Optional[bool] = None
    # Requests the addresses that a new Service would get.
    asks_reevaluation: bool = False
    # externalTrafficPolicy is Local; `allows_local` keeps it so on a local address.
    is_external_local: bool = False
    allows_local: bool = False
    # Prefers nodes with a ready endpoint.
    has_affinity: bool = False
    announcing: Mapping[int, Tuple[Announcement, ...]] = field(default_factory=dict)

    @property
    def bears_marks(self) -> bool:
        """Whether it has annotations that the allocator or an agent sets."""
        marks = (self.allocated_by_us, self.allocated_from, self.pool_type, self.skip_dad)
        return any(marks) or any(self.announcing.values())

    def is_announced(self, address: Address) -> bool:
        """Whether a node says so; entries of older agents have no address, and mean a family."""
        entries = self.announcing.get(address.version, ())
        return any(entry.address in (address, None) for entry in entries)


@dataclass(frozen=True)
class EndpointSlice:
    """The nodes of a Service's ready endpoints, as far as one EndpointSlice lists them."""

    service: ServiceKey
    nodes: FrozenSet[str]


@dataclass(frozen=True)
class AddressRange:
    """The addresses from first to last, inclusive, of one family and one subnet."""

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
        """Prefix length of the range's addresses on an interface."""
        return self.subnet.prefixlen if self.aggregation is None else self.aggregation

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True)
class NetBoxSource:
    """A NetBox that allocates the reserved addresses of a tenant.

    `aggregation`: their prefix length on an interface; None uses the one from NetBox.
    `allows_http`: its token may be sent over HTTP without TLS.
    """

    url: str
    tenant: str
    aggregation: Optional[int] = None
    allows_http: bool = False

    @property
    def token_problem(self) -> str:
        """Why the token must not be sent to this URL, and the remedy; "" if it may be."""
        if self.allows_http or self.url.startswith("https://"):
            return ""
        return (
            "over http:// everybody on the way can read NetBox's token: write an https:// URL "
            "into spec.netbox.url, or set spec.netbox.allowHTTP to true to send it all the same"
        )


@dataclass(frozen=True)
class ExternalSource:
    """A sidecar of the allocator that allocates addresses: its name and its socket's path."""

    provider: str
    socket: str


Source = Union[NetBoxSource, ExternalSource]


@dataclass(frozen=True)
class ServiceGroup:
    """A pool of addresses and how they are announced.

    With a `source`, an external IPAM allocates the addresses. `ranges` then comes from the group's
    status, which the allocator writes: an address may be in use before it appears there.
    """

    name: str
    namespace: str = ""
    uid: str = ""
    # Creation timestamp as text; older ones sort first.
    created: str = ""
    generation: int = 0
    pool_type: PoolType = PoolType.LOCAL
    ranges: Tuple[AddressRange, ...] = ()
    skip_dad: bool = False
    # A Service gets one address of each range that a node can announce, per family.
    multi_pool: bool = False
    # Allocate from the range with the fewest addresses in use, not from the first free one.
    balance_pools: bool = False
    # Whether Services of different namespaces may share an address by key.
    shares_across_namespaces: bool = False
    # Namespaces that it serves. `enforces`: the group serves no other namespaces, and these
    # namespaces use no group that does not serve them.
    namespaces: FrozenSet[str] = frozenset()
    enforces: bool = False
    is_namespace_default: bool = False
    source: Optional[Source] = None

    def range_of(self, address: Address) -> Optional[AddressRange]:
        """Return the range that contains the address, or None."""
        return next((r for r in self.ranges if address in r), None)

    def prefixlen_of(self, address: Address) -> Optional[int]:
        """Return the prefix length of an address of the group; None if not known (yet)."""
        if isinstance(self.source, ExternalSource):
            return None
        if self.source is not None and self.source.aggregation is not None:
            return min(self.source.aggregation, address.max_prefixlen)
        found = self.range_of(address)
        return found.prefixlen if found else None


@dataclass(frozen=True)
class InterfaceAddress:
    """An address on an interface, as reported by the kernel.

    `expires_at` and `preferred_until` are on the observer's clock; None means permanent.
    `protocol`: who put it there (IFA_PROTO); 0 if unknown.
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
    protocol: int = 0

    @property
    def network(self) -> Network:
        """The subnet of the address, by its prefix length."""
        return _network(self.address, self.prefixlen)


@lru_cache(maxsize=1024)
def _network(address: Address, prefixlen: int) -> Network:
    if isinstance(address, IPv4Address):
        return IPv4Network((int(address), prefixlen), strict=False)
    return IPv6Network((int(address), prefixlen), strict=False)


@dataclass(frozen=True)
class Link:
    """A network interface."""

    index: int
    name: str
    # Empty if it is no Ethernet interface.
    mac: bytes = b""
    is_up: bool = True
    # Whether frames get through, as far as the kernel knows.
    has_carrier: bool = True
    # The kernel's ifalias; marks links that an agent created.
    alias: str = ""
    # IP version -> lowest metric of a default route through it.
    default_metrics: Mapping[int, int] = field(default_factory=dict, hash=False)
    # Of the default routes through it.
    gateways: FrozenSet[Address] = frozenset()
    # Subnets whose hosts are neighbors on it, by its routes.
    on_link: FrozenSet[Network] = frozenset()
    # What the kernel calls it (veth, bridge, vlan ...); empty for hardware.
    kind: str = ""
    # Index of the bridge or bond that it belongs to; 0: none.
    master: int = 0

    @property
    def is_ethernet(self) -> bool:
        """Whether its neighbors are found by ARP and NDP over Ethernet: not so on a tunnel."""
        return len(self.mac) == MAC_BYTES

    @property
    def is_ours(self) -> bool:
        """Whether an agent created this link."""
        return self.alias == LINK_ALIAS

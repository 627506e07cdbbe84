# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses from a sidecar, by gRPC over a Unix socket (see proto/ipam.proto).

One channel per socket, kept open; gRPC reconnects to a restarted sidecar by itself.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from purelb.core.addresses import parse_address
from purelb.core.allocation.ipam import IpamRequest, Leased, Stats
from purelb.core.model import Address, ExternalSource, ServiceGroup, ServiceKey
from purelb_agent.ipam.metrics import SidecarMetrics
from purelb_agent.ipam.port import CALL_SECONDS, IpamError
from purelb_agent.proto import ipam_pb2 as messages
from purelb_agent.proto.ipam_pb2_grpc import IPAMStub

# Before a method's name in what counts calls, as gRPC spells it.
_SERVICE = f"/{messages.DESCRIPTOR.services_by_name['IPAM'].full_name}/"
_OPTIONS = (
    # Find a restarted sidecar within a second; gRPC's own back-off grows to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    # Two groups whose sidecars have one name must not share a connection.
    ("grpc.use_local_subchannel_pool", 1),
)
_TRANSIENT = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
}
_REMEDIES = {
    grpc.StatusCode.UNAVAILABLE: (
        "see that its container runs (purelb_install_allocator_sidecars) and listens on this path"
    ),
    grpc.StatusCode.UNIMPLEMENTED: "it must serve purelb.ipam.v1.IPAM",
}
# More would make the status unreadable.
_MOST_DISPLAYED = 256
_LONGEST_DETAIL = 300


class External:
    """Client of the sidecars of all groups."""

    def __init__(self, metrics: SidecarMetrics, *, seconds: float = CALL_SECONDS) -> None:
        self._metrics = metrics
        self._seconds = seconds
        self._channels: dict[str, grpc.aio.Channel] = {}

    async def allocate(self, group: ServiceGroup, request: IpamRequest) -> tuple[Leased, ...]:
        """See Ipam."""
        message = messages.AllocateRequest(
            pool=group.name, service=str(request.service), sharing_key=request.sharing_key
        )
        if request.explicit:
            message.explicit.ips.extend(map(str, request.explicit))
        else:
            message.families.want_ipv4 = 4 in request.families  # noqa: PLR2004 - IP version
            message.families.want_ipv6 = 6 in request.families  # noqa: PLR2004 - IP version
        answer = await self._call(group, "Allocate", message)
        if not answer.ips:
            raise IpamError("it gave no address", is_exhausted=True).at(_where(group))
        return tuple(Leased(_parsed(group, entry.ip)) for entry in answer.ips)

    async def release(
        self, group: ServiceGroup, service: ServiceKey, address: Address | None
    ) -> None:
        """See Ipam."""
        message = messages.ReleaseRequest(pool=group.name, service=str(service))
        if address is None:
            message.all = True
        else:
            message.ip = str(address)
        await self._call(group, "Release", message)

    async def stats(self, group: ServiceGroup) -> Stats:
        """See Ipam."""
        answer = await self._call(group, "Stats", messages.StatsRequest(pool=group.name))
        is_known = answer.has_known_capacity
        return Stats(
            in_use={4: answer.in_use_v4, 6: answer.in_use_v6},
            size={4: answer.size_v4, 6: answer.size_v6} if is_known else {4: None, 6: None},
            display=tuple(answer.display_addresses[:_MOST_DISPLAYED]),
        )

    async def holders(self, _group: ServiceGroup) -> frozenset[ServiceKey]:
        """Return nothing: the protocol has no call for it."""
        return frozenset()

    async def close(self) -> None:
        """Close every connection."""
        channels, self._channels = self._channels, {}
        for channel in channels.values():
            await channel.close()

    def _stub(self, group: ServiceGroup) -> IPAMStub:
        if not isinstance(group.source, ExternalSource):
            raise TypeError(group)
        path = group.source.socket
        if path not in self._channels:
            self._channels[path] = grpc.aio.insecure_channel(f"unix:{path}", options=_OPTIONS)
        return IPAMStub(self._channels[path])  # type: ignore[no-untyped-call]

    async def _call(self, group: ServiceGroup, method: str, message: Any) -> Any:
        call: Callable[..., Awaitable[Any]] = getattr(self._stub(group), method)
        try:
            answer = await call(message, timeout=self._seconds)
        except grpc.aio.AioRpcError as error:
            self._metrics.count(_SERVICE + method, _spelled(error.code()))
            raise _refused(error).at(_where(group)) from error
        # An answer that cannot be decoded arrives as None.
        code = grpc.StatusCode.INTERNAL if answer is None else grpc.StatusCode.OK
        self._metrics.count(_SERVICE + method, _spelled(code))
        if answer is None:
            why = "its answer is not one of proto/ipam.proto: see which version it is made for"
            raise IpamError(why, is_permanent=True).at(_where(group))
        return answer


def _where(group: ServiceGroup) -> str:
    source = group.source
    where = f"{source.provider} at {source.socket}" if isinstance(source, ExternalSource) else ""
    return f"ServiceGroup {group.name}: sidecar {where}"


def _parsed(group: ServiceGroup, text: str) -> Address:
    try:
        return parse_address(text)
    except ValueError as error:
        why = IpamError(f"it gave {text[:50]!r}, which is no address", is_permanent=True)
        raise why.at(_where(group)) from error


def _refused(error: grpc.aio.AioRpcError) -> IpamError:
    code = error.code()
    remediation = f"; {_REMEDIES[code]}" if code in _REMEDIES else ""
    is_exhausted = code is grpc.StatusCode.RESOURCE_EXHAUSTED
    return IpamError(
        f"{_spelled(code)}: {(error.details() or '')[:_LONGEST_DETAIL]}{remediation}",
        is_exhausted=is_exhausted,
        is_permanent=not is_exhausted and code not in _TRANSIENT,
    )


def _spelled(code: grpc.StatusCode) -> str:
    """Return a code as Go spells it, for dashboards made for the Go program."""
    if code is grpc.StatusCode.CANCELLED:
        return "Canceled"
    return "OK" if code is grpc.StatusCode.OK else code.name.title().replace("_", "")

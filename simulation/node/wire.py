# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A network segment: frames between the nodes on it, and hosts that keep who has an address.

Frames are read here by code of the model's own, so that a wrong frame of the agent is noticed.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address

from purelb.core.model import Address
from purelb.core.node.packets import build_announcement
from simulation.node.kernel import Kernel
from simulation.node.messages import LinkState
from simulation.time.process import Process
from simulation.time.timeline import Timeline

# Seconds that a frame takes.
Delay = Callable[[], float]
_ARP, _IPV6 = 0x0806, 0x86DD
_ARP_LENGTH, _ARP_REQUEST = 28, 1
_ICMPV6, _SOLICITATION, _ADVERTISEMENT = 58, 135, 136
_OVERRIDE = 0x20


@dataclass(frozen=True, slots=True)
class Frame:
    """What a frame says: who asks for an address, or claims to have one."""

    mac: bytes
    asks: Address | None = None
    claims: Address | None = None


def read_frame(data: bytes) -> Frame:
    """Return what an ARP or neighbour discovery frame says."""
    (kind,) = struct.unpack_from("!H", data, 12)
    if kind == _ARP and len(data) >= 14 + _ARP_LENGTH:
        (operation,) = struct.unpack_from("!H", data, 20)
        mac, sender, target = data[22:28], data[28:32], data[38:42]
        claims = IPv4Address(sender) if any(sender) else None
        asks = IPv4Address(target) if operation == _ARP_REQUEST else None
        return Frame(mac, asks, claims)
    if kind == _IPV6 and data[20] == _ICMPV6 and data[54] == _SOLICITATION:
        return Frame(data[6:12], asks=IPv6Address(data[62:78]))
    if kind == _IPV6 and data[20] == _ICMPV6 and data[54] == _ADVERTISEMENT:
        if not data[58] & _OVERRIDE:
            raise ValueError("a neighbour advertisement that does not replace what hosts know")
        return Frame(data[6:12], claims=IPv6Address(data[62:78]))
    raise ValueError(f"a frame that is neither ARP nor neighbour discovery: {data.hex()}")


class ClaimSocket:
    """A socket that receives the claims on an interface; see `node.sockets.listen_for_claims`."""

    def __init__(self, process: Process, close: Callable[[ClaimSocket], None]) -> None:
        self._process = process
        self._close = close
        self._received: deque[bytes] = deque()
        self._read: Callable[[], None] | None = None

    def put(self, frame: bytes) -> None:
        """Receive a frame."""
        self._received.append(frame)
        if self._read is not None:
            self._process.deliver(self._tell)

    def _tell(self) -> None:
        if self._read is not None and self._received:
            self._read()

    def recv(self, size: int) -> bytes:
        """Return the next frame; BlockingIOError if there is none."""
        if not self._received:
            raise BlockingIOError
        return self._received.popleft()[:size]

    def on_readable(self, callback: Callable[[], None] | None) -> None:
        """Call back when there is something to read."""
        self._read = callback

    def close(self) -> None:
        """Receive nothing any more."""
        self._close(self)


class Host:
    """A host on the segment that is no node: keeps the MAC address of each address it asked for."""

    def __init__(self) -> None:
        self.neighbors: dict[Address, bytes] = {}

    def hear(self, frame: Frame) -> None:
        """Replace what is known, as hosts do that did not ask."""
        if frame.claims in self.neighbors:
            self.neighbors[frame.claims] = frame.mac


@dataclass
class _Port:
    kernel: Kernel
    link: LinkState
    listening: list[ClaimSocket]


class Segment:
    """The nodes and hosts that hear each other's frames."""

    def __init__(self, timeline: Timeline, delay: Delay) -> None:
        self.hosts: list[Host] = []
        self._timeline = timeline
        self._delay = delay
        self._ports: list[_Port] = []

    def attach(self, kernel: Kernel, link: LinkState) -> None:
        """Connect an interface of a node."""
        self._ports.append(_Port(kernel, link, []))
        kernel.is_taken = self._is_taken

    def holders(self, address: Address) -> list[Kernel]:
        """Return the kernels that answer for an address here."""
        return [port.kernel for port in self._ports if port.kernel.usable(address) is port.link]

    def ask(self, host: Host, address: Address) -> None:
        """Let a host learn who has an address; of several the first one that answers."""
        for port in self._ports:
            if port.kernel.usable(address) is port.link:
                host.neighbors[address] = port.link.mac
                return

    def listen(self, kernel: Kernel, process: Process, interface: str) -> ClaimSocket:
        """Return a socket for the claims on a node's interface; OSError if it has none."""
        port = self._port(kernel, interface)
        opened = ClaimSocket(process, port.listening.remove)
        port.listening.append(opened)
        return opened

    def send(self, kernel: Kernel, interface: str, frames: Iterable[bytes]) -> None:
        """Send frames from a node's interface; OSError if it cannot."""
        port = self._port(kernel, interface)
        for frame in frames:
            self._carry(frame, port)

    def _port(self, kernel: Kernel, interface: str) -> _Port:
        for port in self._ports:
            if port.kernel is kernel and port.link.name == interface and port.link.is_up:
                return port
        raise OSError(f"{interface} is down, gone or no Ethernet interface")

    def _is_taken(self, link: LinkState, address: Address) -> bool:
        others = (port for port in self._ports if port.link is not link)
        return any(
            (port.link.index, address) in port.kernel.held
            for port in others
            if port.link.is_up and port.kernel.machine.runs
        )

    def _carry(self, data: bytes, sender: _Port) -> None:
        frame = read_frame(data)
        self._timeline.after(self._delay(), lambda: self._arrive(data, frame, sender))

    def _arrive(self, data: bytes, frame: Frame, sender: _Port) -> None:
        for host in self.hosts:
            host.hear(frame)
        for port in self._ports:
            if port is sender or not port.kernel.machine.hears:
                continue
            if frame.claims is not None:
                for listening in port.listening:
                    listening.put(data)
            if frame.asks is not None and port.kernel.usable(frame.asks) is port.link:
                self._answer(port, sender, frame.asks)

    def _answer(self, port: _Port, asker: _Port, address: Address) -> None:
        data = build_announcement(port.link.mac, address)[-1]

        def arrive() -> None:
            for listening in asker.listening:
                listening.put(data)

        self._timeline.after(self._delay(), arrive)


class WireSender:
    """Sends the frames of a process; see `node.sockets.FrameSender`."""

    def __init__(self, segments: Iterable[Segment], kernel: Kernel) -> None:
        self._segments = tuple(segments)
        self._kernel = kernel

    def send(self, interface: str, frames: Iterable[bytes]) -> None:
        """Send Ethernet frames; OSError if the interface is gone or down."""
        for segment in self._segments:
            segment.send(self._kernel, interface, frames)

    def close(self) -> None:
        """Nothing is kept open."""

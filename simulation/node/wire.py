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
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

from purelb.core.model import Address
from purelb.core.node.packets import build_announcement
from simulation.chance import stream
from simulation.node.hosts import Host, Use
from simulation.node.kernel import Kernel
from simulation.node.messages import LinkState
from simulation.node.paths import Paths
from simulation.time.process import Process
from simulation.time.timeline import Timeline

Net = IPv4Network | IPv6Network
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


@dataclass
class _Port:
    kernel: Kernel
    link: LinkState
    listening: list[ClaimSocket]

    @property
    def name(self) -> str:
        return self.kernel.machine.name

    @property
    def is_connected(self) -> bool:
        return self.link.is_up and self.link.has_carrier

    def has(self, address: Address) -> bool:
        """Whether it answers for an address."""
        return self.is_connected and self.kernel.usable(address) is self.link

    def drops(self, address: Address) -> bool:
        """Whether its fence lets no claim to an address out."""
        return self.kernel.fence.drops(self.link.index, address)


class Segment:
    """The nodes and hosts that hear each other's frames, as far as `paths` lets them.

    `nets`: the subnets that are on it.
    """

    def __init__(
        self, timeline: Timeline, delay: Delay, *, seed: int = 0, nets: Iterable[Net] = ()
    ) -> None:
        self.nets = tuple(nets)
        self.hosts: list[Host] = []
        # The addresses for which all nodes answer, as with kube-proxy in IPVS mode.
        self.is_everywhere: Callable[[Address], bool] = lambda _address: False
        self.paths = Paths(seed, "frames")
        self._timeline = timeline
        self._delay = delay
        self._seed = seed
        self._ports: list[_Port] = []

    def attach(self, kernel: Kernel, link: LinkState) -> None:
        """Connect an interface of a node."""
        self._ports.append(_Port(kernel, link, []))
        elsewhere = kernel.is_taken

        def is_taken(asking: LinkState, address: Address) -> bool:
            return (self._is_taken if asking is link else elsewhere)(asking, address)

        kernel.is_taken = is_taken

    def link_of(self, kernel: Kernel) -> LinkState | None:
        """Return the interface of a node that is connected here; None if none is."""
        return next((port.link for port in self._ports if port.kernel is kernel), None)

    def heard_by(self, host: Host, address: Address) -> list[str]:
        """Return the nodes that answer for an address and that a host can talk with."""
        connects = self.paths.connects
        return [p.name for p in self._ports if p.has(address) and connects(p.name, host.name)]

    def misleads(self, host: Host, address: Address) -> bool:
        """Whether a host looks for an address at a node that does not answer, and another does."""
        known, connects = host.neighbors.get(address), self.paths.connects
        answering = {
            p.link.mac for p in self._ports if p.has(address) and connects(p.name, host.name)
        }
        return known is not None and bool(answering) and known not in answering

    def ask(self, host: Host, address: Address) -> None:
        """Let a host learn who has an address; of several the first one that answers."""
        mac = self._asked(host, address, None)
        if mac is not None:
            host.learn(address, mac)

    def use(self, host: Host, address: Address) -> Use:
        """Let a host send to an address from now on, and look after what it knows of it."""
        chance = stream(self._seed, host.name, str(address), "neighbour")
        return Use(self._timeline, chance, host, address, partial(self._asked, host, address))

    def _asked(self, host: Host, address: Address, mac: bytes | None) -> bytes | None:
        """Return the MAC address of who answers a host; `mac`: ask only the one that has this."""
        for port in self._ports:
            if mac in (None, port.link.mac) and port.has(address) and self._answers(port, host):
                return port.link.mac
        return None

    def _answers(self, port: _Port, asker: _Port | Host) -> bool:
        """Whether both the question and the answer get through."""
        there = self.paths.passes(asker.name, port.name)
        return there and self.paths.passes(port.name, asker.name)

    def has(self, kernel: Kernel, interface: str) -> bool:
        """Whether a node's interface is connected here."""
        return any(p.kernel is kernel and p.link.name == interface for p in self._ports)

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
        (asker,) = (port for port in self._ports if port.link is link)
        return any(
            (port.link.index, address) in port.kernel.held and self._answers(port, asker)
            for port in self._ports
            if port is not asker
            and port.is_connected
            and port.kernel.machine.runs
            and not port.drops(address)
        )

    def _carry(self, data: bytes, sender: _Port) -> None:
        frame = read_frame(data)
        is_dropped = frame.claims is not None and sender.drops(frame.claims)
        if is_dropped or not sender.is_connected:
            return
        self._timeline.after(self._delay(), lambda: self._arrive(data, frame, sender))

    def _arrive(self, data: bytes, frame: Frame, sender: _Port) -> None:
        for host in self.hosts:
            if frame.claims is not None and self.paths.passes(sender.name, host.name):
                host.hear(frame.claims, frame.mac)
        for port in self._ports:
            is_deaf = not (port.is_connected and port.kernel.machine.hears)
            if port is sender or is_deaf or not self.paths.passes(sender.name, port.name):
                continue
            if frame.claims is not None:
                for listening in port.listening:
                    listening.put(data)
            asked = frame.asks
            if asked is None or port.drops(asked):
                continue
            if port.has(asked) or self.is_everywhere(asked):
                self._answer(port, sender, asked)

    def _answer(self, port: _Port, asker: _Port, address: Address) -> None:
        if not self.paths.passes(port.name, asker.name):
            return
        data = build_announcement(port.link.mac, address)[-1]

        def arrive() -> None:
            for listening in asker.listening:
                listening.put(data)

        self._timeline.after(self._delay(), arrive)


def segment_of(segments: Iterable[Segment], kernel: Kernel, interface: str) -> Segment:
    """Return the segment to which a node's interface is connected; OSError if to none."""
    for segment in segments:
        if segment.has(kernel, interface):
            return segment
    raise OSError(f"{interface} is no Ethernet interface of this node")


def listen_on(
    segments: Iterable[Segment], kernel: Kernel, process: Process, interface: str
) -> ClaimSocket:
    """Return a socket for the claims on a node's interface; OSError if it has none."""
    return segment_of(segments, kernel, interface).listen(kernel, process, interface)


class WireSender:
    """Sends the frames of a process; see `node.sockets.FrameSender`."""

    def __init__(self, segments: Iterable[Segment], kernel: Kernel) -> None:
        self._segments = segments
        self._kernel = kernel

    def send(self, interface: str, frames: Iterable[bytes]) -> None:
        """Send Ethernet frames; OSError if the interface is gone or down."""
        segment_of(self._segments, self._kernel, interface).send(self._kernel, interface, frames)

    def close(self) -> None:
        """Nothing is kept open."""

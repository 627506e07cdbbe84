# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The HTTP endpoints of programs, and how agents reach those of other nodes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Self

from aiohttp import web

from purelb.core.model import Address
from purelb_agent.runtime.probes import BACKLOG
from simulation.node.paths import Paths
from simulation.time.process import Process
from simulation.time.timeline import Action, Timeline

# Seconds that a question or a reply takes.
Delay = Callable[[], float]
_OK = 200
Handler = Callable[[Any], Awaitable[web.StreamResponse]]
_NO_ROUTES: Mapping[str, Handler] = MappingProxyType({})


class Network:
    """Who listens where: servers by address and port.

    `cut`: pairs of machines, by name, between which no question arrives. `paths`: what else is lost
    of the questions and replies; `homes` are the machines that addresses lead to. `heard` is called
    with the name of a machine whenever a reply has reached it, `replied` with who asked, who was
    asked and the reply whenever one is sent. `turned_away`: the machines whose program ran and had
    no place left for a question, once for each.
    """

    def __init__(self, timeline: Timeline, delay: Delay, *, seed: int = 0) -> None:
        self.timeline = timeline
        self.delay = delay
        self.paths = Paths(seed, "questions")
        self.servers: dict[tuple[Address, int], ModelServer] = {}
        self.homes: dict[Address, str] = {}
        self.cut: set[frozenset[str]] = set()
        self.turned_away: list[str] = []
        self.heard: Callable[[str], None] = lambda _machine: None
        self.replied: Callable[[str, str, bytes], None] = lambda _asker, _asked, _body: None

    def is_lost(self, asker: Process, asked: Process) -> bool:
        """Whether a question does not arrive at the machine of another process."""
        is_cut = frozenset({asker.machine.name, asked.machine.name}) in self.cut
        return is_cut or not asked.machine.hears

    def move(self, moved: Mapping[Address, Address]) -> None:
        """Let what listens on addresses of a machine listen on others instead."""
        for server in {id(server): server for server in self.servers.values()}.values():
            server.move(moved)
        self.homes |= {new: self.homes.pop(old) for old, new in moved.items() if old in self.homes}

    def carry(self, sender: str, receiver: str, arrive: Action) -> None:
        """Let a message arrive from one machine at another, unless it gets lost."""
        if self.paths.passes(sender, receiver):
            self.timeline.after(self.delay(), arrive)


class ModelServer:
    """The endpoints of one program; see `purelb_agent.runtime.probes.Probes`.

    `waiting`: connections that the program has not accepted yet.
    """

    def __init__(  # noqa: PLR0913 - those of the product, and where it is
        self,
        network: Network,
        process: Process,
        addresses: tuple[Address, ...],
        registry: object,  # noqa: ARG002 - no one scrapes it
        *,
        port: int,
        is_ready: Callable[[], bool],
        routes: Mapping[str, Handler] = _NO_ROUTES,
    ) -> None:
        self.process = process
        self.routes = routes
        self.is_ready = is_ready
        self.waiting = 0
        self._network = network
        self._places = [(address, port) for address in addresses]

    async def __aenter__(self) -> Self:
        """Listen."""
        self._network.servers.update(dict.fromkeys(self._places, self))
        for address, _port in self._places:
            self._network.homes[address] = self.process.machine.name
        return self

    async def __aexit__(self, *_: object) -> None:
        """Stop listening."""
        for place in self._places:
            del self._network.servers[place]

    def move(self, moved: Mapping[Address, Address]) -> None:
        """Listen on other addresses instead."""
        for place in self._places:
            del self._network.servers[place]
        self._places = [(moved.get(address, address), port) for address, port in self._places]
        self._network.servers.update(dict.fromkeys(self._places, self))


class ModelPeers:
    """Carries the questions of one agent; see `purelb_agent.peers.http.PeerHttp`."""

    def __init__(self, network: Network, process: Process, path: str, port: int) -> None:
        self._network = network
        self._process = process
        self._path = path
        self._port = port

    async def __aenter__(self) -> Self:
        """Nothing is kept open."""
        return self

    async def __aexit__(self, *_: object) -> None:
        """Nothing is kept open."""

    async def send(self, address: Address, message: bytes) -> bytes:
        """Return the body of an agent's reply; OSError if there is none."""
        network, asker = self._network, self._process.machine.name
        home = network.homes.get(address, "")
        replied: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

        def found(body: bytes | None) -> None:
            if replied.done():
                return
            if body is None:
                replied.set_exception(ConnectionRefusedError(f"{address}:{self._port}"))
            else:
                network.heard(self._process.machine.name)
                replied.set_result(body)

        def reply(body: bytes | None) -> None:
            network.replied(asker, home, body or b"")
            network.carry(home, asker, partial(self._process.deliver, found, body))

        def arrive() -> None:
            server = network.servers.get((address, self._port))
            if server is not None and network.is_lost(self._process, server.process):
                return
            if server is None or server.process.is_dead or self._path not in server.routes:
                reply(None)
            elif server.waiting < BACKLOG:
                server.waiting += 1
                request = ModelRequest(message)
                server.process.deliver(_handle, server, self._path, request, reply)
            elif server.process.machine.runs and not server.process.is_frozen:
                network.turned_away.append(home)

        network.carry(asker, home, arrive)
        return await replied


class ModelRequest:
    """What a handler reads of a request."""

    def __init__(self, message: bytes) -> None:
        self._message = message

    async def read(self) -> bytes:
        """Return the body."""
        return self._message


def _handle(
    server: ModelServer, path: str, request: ModelRequest, reply: Callable[[bytes], None]
) -> None:
    """Answer a question in a task of the program that was asked, also if no one waits any more."""
    server.waiting -= 1
    handler = server.routes[path]

    async def handle() -> None:
        answer = await handler(request)
        is_answer = isinstance(answer, web.Response) and answer.status == _OK
        body = answer.body if is_answer and isinstance(answer, web.Response) else b"refused"
        reply(body if isinstance(body, bytes) else b"")

    task = asyncio.get_running_loop().create_task(handle(), name="answer")
    # A loop keeps its tasks by weak references.
    _ANSWERING.add(task)
    task.add_done_callback(_ANSWERING.discard)


_ANSWERING: set[asyncio.Task[None]] = set()

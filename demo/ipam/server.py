# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A sample IPAM sidecar that allocates addresses from ranges.

It needs only PureLB's image. It stores its allocations in one file, which it reads for each call
and replaces atomically before it answers: no answered allocation is lost, and the sidecars of
several allocators can share the file. Your own sidecar would call your IPAM instead of reading and
writing the file.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from pathlib import Path

import grpc

from purelb_agent.proto import ipam_pb2 as messages
from purelb_agent.proto.ipam_pb2_grpc import IPAMServicer, add_IPAMServicer_to_server


class RefusalError(Exception):
    """A request is refused, with a gRPC status code and a message."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Pool:
    """The allocations in the file: address -> [sharing key, Service, ...]."""

    def __init__(self, ranges: list[str], file: Path) -> None:
        self.ranges = [tuple(ip_address(end) for end in text.split("-")) for text in ranges]
        self._file = file
        self.given: dict[str, list[str]] = {}

    @contextmanager
    def opened(self) -> Iterator[Pool]:
        """Lock and read the file; write the changes afterwards, unless an exception occurs."""
        with self._file.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.given = json.loads(self._file.read_text()) if self._file.exists() else {}
            before = json.dumps(self.given)
            yield self
            if json.dumps(self.given) != before:
                self._save()

    def addresses(self, version: int) -> Iterator[str]:
        """Yield every address of a family."""
        for first, last in self.ranges:
            if first.version == version:
                for offset in range(int(last) - int(first) + 1):
                    yield str(first + offset)

    def held(self, service: str) -> list[str]:
        """Return the addresses of a Service."""
        return [address for address, (_key, *users) in self.given.items() if service in users]

    def take(self, service: str, version: int, key: str) -> str | None:
        """Allocate an address of a family: the Service's own, one with its key, or a free one.

        Returns None if there is none.
        """
        mine = [a for a in self.held(service) if ip_address(a).version == version]
        shared = [
            a
            for a, (its_key, *_users) in self.given.items()
            if key and its_key == key and ip_address(a).version == version
        ]
        free = (a for a in self.addresses(version) if a not in self.given)
        found = next(iter(mine or shared), None) or next(free, None)
        if found is not None:
            self.give(found, service, key)
        return found

    def give(self, address: str, service: str, key: str) -> None:
        """Allocate this address to a Service. Raises RefusalError."""
        if address not in self.addresses(ip_address(address).version):
            raise RefusalError(
                grpc.StatusCode.INVALID_ARGUMENT, f"{address} is not in the pool: ask for another"
            )
        its_key, *users = self.given.setdefault(address, [key])
        if service in users:
            return
        if users and not (key and key == its_key):
            raise RefusalError(
                grpc.StatusCode.FAILED_PRECONDITION,
                f"{address} belongs to {', '.join(users)}: ask for another",
            )
        self.given[address].append(service)

    def take_back(self, service: str, address: str | None) -> None:
        """Release one address of a Service, or all if `address` is None."""
        for held in self.held(service):
            if address in (None, held):
                self.given[held].remove(service)
                if len(self.given[held]) == 1:
                    del self.given[held]

    def _save(self) -> None:
        """Replace the file atomically."""
        new = self._file.with_suffix(".new")
        with new.open("w") as stream:
            json.dump(self.given, stream)
            stream.flush()
            os.fsync(stream.fileno())
        new.replace(self._file)


class Server(IPAMServicer):
    """Serves the three calls of purelb.ipam.v1.IPAM."""

    # The generated class is for servers with threads, too.
    # pylint: disable=invalid-overridden-method

    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def Allocate(  # noqa: N802 - gRPC's name
        self, request: messages.AllocateRequest, context: grpc.aio.ServicerContext
    ) -> messages.AllocateResponse:
        """Allocate addresses for a Service."""
        try:
            with self._pool.opened():
                found = self._allocate(request)
        except RefusalError as error:
            await context.abort(error.code, str(error))
        return messages.AllocateResponse(ips=[messages.AllocatedIP(ip=ip) for ip in found])

    def _allocate(self, request: messages.AllocateRequest) -> list[str]:
        service, key = request.service, request.sharing_key
        if request.HasField("explicit"):
            for ip in request.explicit.ips:
                self._pool.give(str(ip_address(ip)), service, key)
            return list(request.explicit.ips)
        families = request.families
        wanted = [v for v, want in ((4, families.want_ipv4), (6, families.want_ipv6)) if want]
        found = [self._pool.take(service, version, key) for version in wanted]
        if not any(found):
            raise RefusalError(
                grpc.StatusCode.RESOURCE_EXHAUSTED, "no address is left: enlarge the ranges"
            )
        return [ip for ip in found if ip]

    async def Release(  # noqa: N802 - gRPC's name
        self, request: messages.ReleaseRequest, _context: grpc.aio.ServicerContext
    ) -> messages.ReleaseResponse:
        """Release one address or all addresses of a Service."""
        with self._pool.opened() as pool:
            pool.take_back(request.service, None if request.all else request.ip)
        return messages.ReleaseResponse()

    async def Stats(  # noqa: N802 - gRPC's name
        self, _request: messages.StatsRequest, _context: grpc.aio.ServicerContext
    ) -> messages.StatsResponse:
        """Return the numbers of used and existing addresses."""
        with self._pool.opened() as pool:
            versions = [ip_address(ip).version for ip in pool.given]
        sizes = {4: 0, 6: 0}
        for first, last in self._pool.ranges:
            sizes[first.version] += int(last) - int(first) + 1
        return messages.StatsResponse(
            in_use_v4=versions.count(4),
            in_use_v6=versions.count(6),
            size_v4=sizes[4],
            size_v6=sizes[6],
            has_known_capacity=True,
            display_addresses=[f"{first}-{last}" for first, last in self._pool.ranges],
        )


async def serve(pool: Pool, socket: str) -> None:
    """Serve until SIGTERM or SIGINT."""
    server = grpc.aio.server()
    add_IPAMServicer_to_server(Server(pool), server)
    server.add_insecure_port(f"unix:{socket}")
    await server.start()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await server.stop(grace=1)


def main() -> None:
    """Read the arguments and serve."""
    parser = argparse.ArgumentParser(description="Allocate addresses for PureLB's allocator.")
    parser.add_argument("--socket", default="/var/run/purelb/ipam.sock")
    parser.add_argument("--file", type=Path, required=True, help="the file for its allocations")
    parser.add_argument("ranges", nargs="+", metavar="FIRST-LAST")
    options = parser.parse_args()
    # A killed server leaves its socket.
    Path(options.socket).unlink(missing_ok=True)
    asyncio.run(serve(Pool(options.ranges, options.file), options.socket))


if __name__ == "__main__":
    main()

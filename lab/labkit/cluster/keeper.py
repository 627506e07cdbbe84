# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""A daemon of the lab that recreates a node's kube-lb0 after it was deleted.

Agents create and delete a link of that name with type dummy. On a kernel without that type an
agent cannot create it, so the lab recreates its substitute. Only link events wake the daemon.
"""

import contextlib
import selectors
import socket
import sys
from pathlib import Path

from labkit.net.namespaces import ip_batch, ip_json, netns
from labkit.net.network import DUMMY, dummy_commands
from labkit.topology import Host, Topology

NAME = "keep-links"
_RTMGRP_LINK = 1


def command() -> list[str]:
    """Return the command line of this daemon."""
    script = Path(__file__).resolve().parents[2] / "lab"
    return [sys.executable, str(script), NAME]


def run(topology: Topology) -> None:
    """Watch every node's links and recreate kube-lb0; never returns."""
    with selectors.DefaultSelector() as watch:
        for node in topology.nodes:
            watch.register(_events_of(node), selectors.EVENT_READ, node)
            put_back(node)
        while True:
            for key, _ in watch.select():
                _drain(key.fileobj)
                put_back(key.data)


def put_back(node: Host) -> None:
    """Create the link unless it exists."""
    if not ip_json(node.netns, "link", "show", "dev", DUMMY):
        ip_batch(dummy_commands(), namespace=node.netns, force=True)


def _events_of(node: Host) -> socket.socket:
    with netns(node.netns):
        events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    events.bind((0, _RTMGRP_LINK))
    events.setblocking(False)
    return events


def _drain(events: object) -> None:
    # An overrun of the buffer does not matter: the caller looks for the link itself.
    assert isinstance(events, socket.socket)  # noqa: S101 - for the type checker
    with contextlib.suppress(OSError):
        while events.recv(65536):
            pass

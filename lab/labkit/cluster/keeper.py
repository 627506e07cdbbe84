# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Puts a node's kube-lb0 back when somebody deletes it.

Agents make and delete a link of that name as type dummy. Where the kernel has no such type the
lab's stand-in must come back by itself, as an agent could not make it. Runs as a daemon of the
lab and wakes up on link events only.
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
    """Watch every node's links, for ever."""
    with selectors.DefaultSelector() as watch:
        for node in topology.nodes:
            watch.register(_events_of(node), selectors.EVENT_READ, node)
            put_back(node)
        while True:
            for key, _ in watch.select():
                _drain(key.fileobj)
                put_back(key.data)


def put_back(node: Host) -> None:
    """Make the link unless it is there."""
    if not ip_json(node.netns, "link", "show", "dev", DUMMY):
        ip_batch(dummy_commands(), namespace=node.netns, force=True)


def _events_of(node: Host) -> socket.socket:
    with netns(node.netns):
        events = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    events.bind((0, _RTMGRP_LINK))
    events.setblocking(False)
    return events


def _drain(events: object) -> None:
    # Also an overrun ends here: the link itself is looked at either way.
    assert isinstance(events, socket.socket)  # noqa: S101 - for the type checker
    with contextlib.suppress(OSError):
        while events.recv(65536):
            pass

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Requests to the kernel's rtnetlink, each with its whole reply.

The kernel answers a request at once, so requests are made without waiting in the event loop.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable

from purelb.core.node import rtnetlink
from purelb.core.node.rtnetlink import Message, Reply

BUFFER = 1 << 20
_SECONDS = 2.0
# How often a dump is asked for while changes of what it lists interrupt it.
_DUMPS = 5


class NetlinkError(OSError):
    """The kernel refused a request, or its answer cannot be used."""


class NoAnswerError(NetlinkError):
    """No answer came in time or whole: the request may have been carried out all the same."""


def open_socket(groups: int) -> socket.socket:
    """Return a netlink socket that also receives the notifications of these groups."""
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER)
    opened.bind((0, groups))
    return opened


class Requests:
    """A socket for requests; the kernel answers one before it takes the next."""

    def __init__(self, open_socket: Callable[[int], socket.socket]) -> None:
        self._socket = open_socket(0)
        self._socket.settimeout(_SECONDS)
        self._sequence = 0

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def send(self, build: Callable[[int], bytes]) -> Reply:
        """Send a request and return its reply; NetlinkError if it was refused."""
        self._sequence += 1
        try:
            self._socket.send(build(self._sequence))
            reply = rtnetlink.read_reply(lambda: self._socket.recv(BUFFER), self._sequence)
        except OSError as error:
            raise NoAnswerError(error.errno or errno.ETIMEDOUT, str(error)) from error
        if reply.error:
            raise NetlinkError(reply.error, os.strerror(reply.error))
        return reply

    def dump(self, build: Callable[[int], bytes]) -> list[Message]:
        """Return all that a dump lists; NetlinkError if none of some dumps was whole.

        What an interrupted dump lacks may well be there, so it must not be taken for gone.
        """
        for _attempt in range(_DUMPS):
            reply = self.send(build)
            if not reply.was_interrupted:
                return reply.messages
        raise NetlinkError(errno.EINTR, "each dump was interrupted by a change")

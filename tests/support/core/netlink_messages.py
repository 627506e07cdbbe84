# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Netlink messages for tests of their decoding."""

from __future__ import annotations

import struct

from purelb.core.node import rtnetlink


def encoded(kind, number, header, attributes):
    """A message encoded by an independent library, as we split it."""
    message = kind()
    message["header"]["type"] = number
    for field, value in header.items():
        message[field] = value
    message["attrs"] = attributes
    message.encode()
    (read,) = rtnetlink.parse_messages(bytes(message.data))
    return read


def attribute(kind, data):
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)

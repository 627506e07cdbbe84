# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The rtnetlink messages that attach the fence's programs to interfaces, and say what is there.

Layouts: linux/rtnetlink.h (tcmsg), linux/pkt_cls.h. Constants have the names of these headers.
"""

from __future__ import annotations

import struct
from typing import NamedTuple, Optional

from ..node.rtnetlink import (
    AF_UNSPEC,
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_DUMP,
    NLM_F_EXCL,
    U32,
    Message,
    attribute,
    parse_attributes,
    request,
)
from .hooks import Hook

RTM_NEWQDISC, RTM_DELQDISC, RTM_GETQDISC = 36, 37, 38
RTM_NEWTFILTER, RTM_DELTFILTER, RTM_GETTFILTER = 44, 45, 46
RTMGRP_TC = 0x8

TCA_KIND, TCA_OPTIONS = 1, 2
TCA_BPF_FD, TCA_BPF_NAME, TCA_BPF_FLAGS, TCA_BPF_ID = 6, 7, 8, 11
TCA_BPF_FLAG_ACT_DIRECT = 1
TC_H_CLSACT = 0xFFFFFFF1
_CLSACT_HANDLE = 0xFFFF0000
_PARENTS = {False: 0xFFFFFFF2, True: 0xFFFFFFF3}

# What `tc filter show` prints next to a filter of ours.
NAME = "purelb"
# Lower numbers come first; at the same one, the newest. So a filter that has got behind another one
# is put under the other handle, and removed under the first.
PRIORITY = 1
HANDLES = (0x7075, 0x7076)
# ETH_P_ALL, in network order.
(_ALL_PROTOCOLS,) = struct.unpack("=H", b"\0\3")

_TCMSG = struct.Struct("=BxxxiIII")  # family, index, handle, parent, info


class Filter(NamedTuple):
    """A filter on an interface: `kind` as tc names it, and of a BPF program its name and id."""

    handle: int
    kind: str
    name: str = ""
    program: int = 0

    @property
    def is_ours(self) -> bool:
        """Whether an agent put it there."""
        return self.kind == "bpf" and self.name == NAME


class Qdisc(NamedTuple):
    """A queue discipline: `kind` as tc names it."""

    link: int
    parent: int
    kind: str


def build_clsact(index: int, sequence: int) -> bytes:
    """Return the RTM_NEWQDISC that lets an interface have filters; EEXIST if it may already.

    EEXIST also if it has an `ingress` qdisc, which takes filters of both directions for its own.
    """
    body = _TCMSG.pack(AF_UNSPEC, index, _CLSACT_HANDLE, TC_H_CLSACT, 0)
    mode = NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL
    return request(RTM_NEWQDISC, mode, sequence, body + _text(TCA_KIND, "clsact"))


def build_filter(hook: Hook, program_fd: int, handle: int, sequence: int) -> bytes:
    """Return the RTM_NEWTFILTER that attaches a program, in place of the one of that handle."""
    options = (
        attribute(TCA_BPF_FD, U32.pack(program_fd))
        + _text(TCA_BPF_NAME, NAME)
        + attribute(TCA_BPF_FLAGS, U32.pack(TCA_BPF_FLAG_ACT_DIRECT))
    )
    body = _at(hook, handle) + _text(TCA_KIND, "bpf") + attribute(TCA_OPTIONS, options)
    return request(RTM_NEWTFILTER, NLM_F_ACK | NLM_F_CREATE, sequence, body)


def build_remove_filter(hook: Hook, handle: int, sequence: int) -> bytes:
    """Return the RTM_DELTFILTER that detaches the program of that handle."""
    body = _at(hook, handle) + _text(TCA_KIND, "bpf")
    return request(RTM_DELTFILTER, NLM_F_ACK, sequence, body)


def build_dump_filters(hook: Hook, sequence: int) -> bytes:
    """Return the request for all filters of one direction, in the order in which they run."""
    body = _TCMSG.pack(AF_UNSPEC, hook.link, 0, _PARENTS[hook.is_egress], 0)
    return request(RTM_GETTFILTER, NLM_F_DUMP, sequence, body)


def build_dump_qdiscs(sequence: int) -> bytes:
    """Return the request for the queue disciplines of all interfaces."""
    return request(RTM_GETQDISC, NLM_F_DUMP, sequence, bytes(_TCMSG.size))


def parse_filter(message: Message) -> Optional[Filter]:
    """Return the filter in an RTM_NEWTFILTER; None if it only names a priority."""
    _family, _index, handle, _parent, _info = _TCMSG.unpack_from(message.body)
    attributes = parse_attributes(message.body, _TCMSG.size)
    if not handle:
        return None
    kind = _parse_text(attributes.get(TCA_KIND, b""))
    options = parse_attributes(attributes.get(TCA_OPTIONS, b""), 0) if kind == "bpf" else {}
    (program,) = U32.unpack(options.get(TCA_BPF_ID, bytes(U32.size)))
    return Filter(handle, kind, _parse_text(options.get(TCA_BPF_NAME, b"")), program)


def parse_qdisc(message: Message) -> Qdisc:
    """Return the queue discipline in an RTM_NEWQDISC."""
    _family, index, _handle, parent, _info = _TCMSG.unpack_from(message.body)
    kind = parse_attributes(message.body, _TCMSG.size).get(TCA_KIND, b"")
    return Qdisc(index, parent, _parse_text(kind))


def _at(hook: Hook, handle: int) -> bytes:
    parent = _PARENTS[hook.is_egress]
    return _TCMSG.pack(AF_UNSPEC, hook.link, handle, parent, PRIORITY << 16 | _ALL_PROTOCOLS)


def _text(kind: int, text: str) -> bytes:
    return attribute(kind, text.encode() + b"\0")


def _parse_text(data: bytes) -> str:
    return data.rstrip(b"\0").decode(errors="replace")

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Connects a node of a running lab to a further lan, and undoes that.

The state file has each interface from before it is created until after it is removed.
"""

from labkit.cluster import state
from labkit.errors import Problem
from labkit.host.places import Places
from labkit.net import network
from labkit.topology import Interface, Topology


def connect(at: Places, node: str, lan: str) -> tuple[Topology, Interface]:
    """Give a node one more interface; return the topology since then, and the interface."""
    with state.locked(at.lock, f"connect {node} {lan}"):
        before = _load(at)
        after = before.connected(node, lan)
        state.save_topology(at, after)
        try:
            network.change(before, after)
        except BaseException:
            _change_back(at, after, before)
            raise
    return after, after.node(node).interfaces[-1]


def disconnect(at: Places, node: str, lan: str) -> Topology:
    """Remove the interface that `connect` gave a node; return the topology since then."""
    with state.locked(at.lock, f"disconnect {node} {lan}"):
        before = _load(at)
        after = before.disconnected(node, lan)
        _change_back(at, before, after)
    return after


def restore(at: Places) -> bool:
    """Remove all interfaces of `connect`; return whether there were any.

    The caller has the lock.
    """
    before = _load(at)
    is_changed = before != before.planned
    if is_changed:
        _change_back(at, before, before.planned)
    return is_changed


def _change_back(at: Places, before: Topology, after: Topology) -> None:
    network.change(before, after)
    state.save_topology(at, after)


def _load(at: Places) -> Topology:
    topology = state.load_topology(at)
    if topology is None:
        raise Problem("no lab is up: start one with 'lab up'")
    return topology

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What faults of the allocator that leads do: what begins each, and returns how it ends."""

from __future__ import annotations

from purelb.core.names import DEFAULT_NAMESPACE, LEADER_LEASE
from simulation import users
from simulation.api.way import Reach
from simulation.explore.fault import Fault
from simulation.explore.troubles import Troubles
from simulation.explore.ways import writes_act_late
from simulation.time.timeline import Action


def _user(troubles: Troubles) -> str:
    return f"allocator/{users.leader(troubles.cluster)}"


def kill(troubles: Troubles, _fault: Fault) -> Action:
    """Kill it; its kubelet starts it again."""
    users.kill_leader(troubles.cluster)
    return _nothing


def cut(troubles: Troubles, _fault: Fault) -> Action:
    """Let it not reach the API."""
    return troubles.reach(_user(troubles), Reach.DROPPED)


def slow(troubles: Troubles, fault: Fault) -> Action:
    """Let its writes take `value` seconds."""
    return troubles.slow(_user(troubles), writes_act_late(fault.value))


def freeze(troubles: Troubles, _fault: Fault) -> Action:
    """Let none of its code run."""
    process = troubles.cluster.allocators[users.leader(troubles.cluster)]
    return troubles.freeze(process)


def pause(troubles: Troubles, _fault: Fault) -> Action:
    """Pause its machine, with all its clocks."""
    machine = troubles.cluster.allocators[users.leader(troubles.cluster)].machine
    return troubles.pause_machine(machine)


def delete_lock(troubles: Troubles, _fault: Fault) -> Action:
    """Delete the Lease by which it leads."""
    cluster = troubles.cluster
    if cluster.find("leases", DEFAULT_NAMESPACE, LEADER_LEASE) is not None:
        cluster.drop("leases", DEFAULT_NAMESPACE, LEADER_LEASE)
    return _nothing


def _nothing() -> None:
    """End what does not end."""

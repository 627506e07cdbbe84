# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What users and operators do in schedules: what begins it, and returns how it ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from purelb.core.holding.peer_keys import SIGNING, RotationStep, after_step, parse_keys
from purelb.core.names import DEFAULT_NAMESPACE, DRAINING_TAINTS, EXCLUDE_LABEL
from purelb.core.node.service_proxy import Answer
from purelb.core.settings import TimingChoice
from simulation import users
from simulation.chance import stream
from simulation.explore.able import CONFIG, SELECTED
from simulation.explore.fault import Fault
from simulation.explore.troubles import Troubles
from simulation.member import KEYS, Node
from simulation.time.timeline import Action

# As in the group that a cluster begins with.
_POOL = {"v4": "172.28.1.200-172.28.1.250", "v6": "fd28::200-fd28::2ff"}
_NEW_KEY = b"the next key of all agents of it"
_ROTATION = (RotationStep.ADD, RotationStep.SWITCH, RotationStep.REMOVE)
_FAST = TimingChoice(5.0, 3.5, 1.0)


def taint(troubles: Troubles, fault: Fault) -> Action:
    """Give Nodes a draining taint."""
    return _all(_taint, troubles, fault)


def _taint(troubles: Troubles, node: Node) -> Action:
    cluster = troubles.cluster

    def show(wrong: Sequence[bool]) -> None:
        if cluster.find("nodes", "", node.name) is None:
            return
        if not wrong:
            users.untaint(cluster, node, DRAINING_TAINTS[0])
        elif not troubles.able.is_tainted(node):
            users.taint(cluster, node, DRAINING_TAINTS[0])

    return troubles.begin(("taint", node.name), True, show)


def exclude(troubles: Troubles, fault: Fault) -> Action:
    """Give Nodes the label by which load balancers leave them out."""
    return _all(_exclude, troubles, fault)


def _exclude(troubles: Troubles, node: Node) -> Action:
    cluster = troubles.cluster

    def show(wrong: Sequence[bool]) -> None:
        if cluster.find("nodes", "", node.name) is None:
            return
        if wrong:
            users.label(cluster, node, **{EXCLUDE_LABEL: ""})
        else:
            users.unlabel(cluster, node, EXCLUDE_LABEL)

    return troubles.begin(("label", node.name), True, show)


def end_proxy(troubles: Troubles, fault: Fault) -> Action:
    """Let nodes be without their kube-proxy."""
    return _all(_end_proxy, troubles, fault)


def _end_proxy(troubles: Troubles, node: Node) -> Action:
    def show(wrong: Sequence[bool]) -> None:
        node.service_proxy = Answer.NONE if wrong else Answer.GOOD

    return troubles.begin(("kube-proxy", node.name), True, show)


def change_type(troubles: Troubles, _fault: Fault) -> Action:
    """Make a Service one without an address, and back at the end."""
    users.change_type(troubles.cluster, "s1", "ClusterIP")

    def end() -> None:
        users.change_type(troubles.cluster, "s1", "LoadBalancer")

    return end


def move_pool(troubles: Troubles, _fault: Fault) -> Action:
    """Let the default group have other ranges, in which no address is that was given."""
    cluster = troubles.cluster
    users.put_group(cluster, "default", v4="172.28.1.100-172.28.1.150", v6="fd28::300-fd28::3ff")

    def end() -> None:
        users.put_group(cluster, "default", **_POOL)

    return end


def new_service(troubles: Troubles, fault: Fault) -> Action:
    """Create a Service, and delete it at the end."""
    name = f"at-{fault.at:.3f}-for-{fault.seconds:.3f}"
    cluster = troubles.cluster
    cluster.add_service(name)

    def delete() -> None:
        # Unless an older store was put back, which did not have it.
        if cluster.find("services", "default", name) is not None:
            cluster.drop("services", "default", name)

    return delete


def move_endpoints(troubles: Troubles, fault: Fault) -> Action:
    """Let the endpoints of the Local Services move to these nodes."""
    for name in users.local_services(troubles.cluster):
        users.move_endpoints(troubles.cluster, name, fault.nodes)
    return _nothing


def roll_out(troubles: Troubles, _fault: Fault) -> Action:
    """Begin to give all agents a timing of half the seconds."""
    users.roll_out(troubles.cluster, _FAST, noted=troubles.note_restart)
    return _nothing


def rotate_keys(troubles: Troubles, fault: Fault) -> Action:
    """Rotate the keys of the peers; each node reads each step at a moment of its own."""
    cluster, step_seconds = troubles.cluster, fault.seconds / len(_ROTATION)
    chance = stream(cluster.seed, "kubelets", str(fault.at))
    data = {SIGNING: KEYS.signing}
    for number, step in enumerate(_ROTATION):
        data = after_step(data, step, new=_NEW_KEY)
        keys = parse_keys(data)
        cluster.timeline.after(number * step_seconds, partial(setattr, troubles, "keys", keys))
        for node in troubles.nodes:
            after = (number + chance.random()) * step_seconds
            cluster.timeline.after(after, partial(setattr, node, "keys", keys))
    return _nothing


def unselect(troubles: Troubles, fault: Fault) -> Action:
    """Let an LBNodeAgent select those nodes of today that are not among these.

    It takes the place of the one for all nodes, if there is one.
    """
    cluster = troubles.cluster
    of_all = cluster.find("configs", DEFAULT_NAMESPACE, "default")
    local = of_all["spec"]["local"] if of_all else {}

    def show(wrong: Sequence[Sequence[str]]) -> None:
        if not wrong:
            # Unless an older store was put back, which did not have it.
            if of_all is not None:
                users.configure(cluster, "default", local=local)
            if cluster.find("configs", DEFAULT_NAMESPACE, CONFIG) is not None:
                users.unconfigure(cluster, CONFIG)
            return
        hit = {name for each in wrong for name in each}
        for node in troubles.nodes:
            if cluster.find("nodes", "", node.name) is not None:
                users.label(cluster, node, selected=str(node.name not in hit))
        users.configure(cluster, CONFIG, local=local, labels=SELECTED)
        if of_all is not None and cluster.find("configs", DEFAULT_NAMESPACE, "default"):
            users.unconfigure(cluster, "default")

    return troubles.begin(("selected",), fault.nodes, show)


def _all(begin: Callable[[Troubles, Node], Action], troubles: Troubles, fault: Fault) -> Action:
    """Begin something at each node of a fault; return what ends it at all."""
    ends = [begin(troubles, troubles.cluster.nodes[name]) for name in fault.nodes]

    def end() -> None:
        for each in ends:
            each()

    return end


def _nothing() -> None:
    """End what does not end."""

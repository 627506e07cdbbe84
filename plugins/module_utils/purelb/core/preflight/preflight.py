# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What to say before an installation writes anything, and what stops it.

It stops where it would harm what already serves, or could not work. What an earlier run of the same
installation has brought about already does not stop an upgrade: it is only said.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import AbstractSet, FrozenSet, Iterator, Mapping, Optional, Sequence, Tuple

from ..texts import few
from .controllers import Controller, Pod

_PRIVILEGED = "privileged"


@dataclass(frozen=True)
class Wanted:
    """The installation that is to be made. `port`: the host port of its agents.

    `labels_namespace`: whether it sets the labels of its namespace.
    """

    namespace: str
    port: int
    node_selector: Mapping[str, str] = field(default_factory=dict)
    claims_unclassed: bool = True
    labels_namespace: bool = True


@dataclass(frozen=True)
class Existing:
    """What the same installation has now."""

    port: int
    claims_unclassed: bool


@dataclass(frozen=True)
class Namespace:
    """The namespace as it is. `is_ours`: the role made it. `level`: what Pod security enforces."""

    is_ours: bool = False
    level: str = ""


@dataclass(frozen=True)
class ProxyMode:
    """What the configuration of kube-proxy says."""

    mode: str = ""
    has_strict_arp: bool = False


@dataclass(frozen=True)
class Seen:
    """What was found in the cluster.

    `nodes`: their labels, by name. `installations`: namespaces of
    other installations of this collection. `refusal`: what the API server says to a Pod of the
    agents in the namespace, empty if it would take it. `others`: Services without a class that have
    addresses of another program, by its name. `unread`: what could not be read, and why.
    """

    pods: Tuple[Pod, ...] = ()
    nodes: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    controllers: Tuple[Controller, ...] = ()
    installations: Tuple[str, ...] = ()
    namespace: Optional[Namespace] = None
    refusal: str = ""
    others: Mapping[str, Tuple[str, ...]] = field(default_factory=dict)
    service_proxy: ProxyMode = ProxyMode()
    unread: Tuple[str, ...] = ()


@dataclass(frozen=True)
class Obstacle:
    """Something to say before an installation. `stops`: unless its name was accepted."""

    name: str
    message: str
    remediation: str
    stops: bool


def obstacles(
    wanted: Wanted,
    existing: Optional[Existing],
    seen: Seen,
    *,
    accepted: AbstractSet[str] = frozenset(),
) -> Tuple[Obstacle, ...]:
    """Return what an installation would meet; what stops it comes first."""
    found = [
        *_installations(seen),
        *_controllers(wanted, existing, seen, accepted),
        *_ports(wanted, existing, seen, accepted),
        *_admission(wanted, existing, seen, accepted),
        *_others(wanted, existing, seen),
        *_service_proxy(seen),
        *(Obstacle("unread", text, "Look yourself, or ask who may", False) for text in seen.unread),
    ]
    return tuple(sorted(found, key=lambda obstacle: not obstacle.stops))


def may_label(wanted: Wanted, namespace: Optional[Namespace], accepted: AbstractSet[str]) -> bool:
    """Whether the installation may make its namespace, or change the labels of the present one.

    One that others made stays as it is, unless they said that its Pod security may be lowered.
    """
    if not wanted.labels_namespace:
        return False
    return namespace is None or namespace.is_ours or "podSecurity" in accepted


def _installations(seen: Seen) -> Iterator[Obstacle]:
    if not seen.installations:
        return
    # Agents know their own addresses on an interface by one mark, whose ever they are.
    yield Obstacle(
        "otherInstallation",
        f"this collection has installed PureLB in namespace {few(seen.installations)} already, and "
        "agents of two installations take each other's addresses off the interfaces",
        "Set purelb_install_namespace to that one, or remove it first with purelb_install_state: "
        "absent. Different groups of users need no second one: see ServiceGroups and namespaces",
        stops=True,
    )


def _claims_more(wanted: Wanted, existing: Optional[Existing]) -> bool:
    """Whether Services without a class are claimed and were not before."""
    return wanted.claims_unclassed and not (existing is not None and existing.claims_unclassed)


def _controllers(
    wanted: Wanted, existing: Optional[Existing], seen: Seen, accepted: AbstractSet[str]
) -> Iterator[Obstacle]:
    for controller in seen.controllers:
        if not (controller.takes_all and wanted.claims_unclassed):
            continue
        yield Obstacle(
            controller.name,
            f"{controller.title} gives addresses to Services without a loadBalancerClass "
            f"({controller.seen}), and so would PureLB",
            f"Either {controller.way}; or set purelb_install_claim_unclassed to false, and give "
            "Services for PureLB the class purelb.io/purelbv2; or, if it leaves Services without "
            f"a class alone, add {controller.name} to purelb_install_accept",
            stops=_claims_more(wanted, existing) and controller.name not in accepted,
        )


def _ports(
    wanted: Wanted, existing: Optional[Existing], seen: Seen, accepted: AbstractSet[str]
) -> Iterator[Obstacle]:
    taken = [
        pod
        for pod in seen.pods
        if wanted.port in pod.host_ports
        and not _is_of(pod, wanted)
        and _runs_there(pod, wanted, seen.nodes)
    ]
    if not taken:
        return
    texts = [f"{pod.namespace}/{pod.name}" for pod in taken]
    nodes = sorted({pod.node or "no node yet" for pod in taken})
    yield Obstacle(
        "port",
        f"port {wanted.port} of {few(nodes)} is taken by Pod {few(texts)}; the agents need it, and "
        "because they are system-node-critical, such Pods would have to give way",
        f"Set purelb_install_metrics_port to a free one, such as {_free(seen, wanted.port)}",
        stops=(existing is None or existing.port != wanted.port) and "port" not in accepted,
    )


def _is_of(pod: Pod, wanted: Wanted) -> bool:
    is_named = pod.labels.get("app.kubernetes.io/name") == "purelb"
    return is_named and pod.namespace == wanted.namespace


def _runs_there(pod: Pod, wanted: Wanted, nodes: Mapping[str, Mapping[str, str]]) -> bool:
    """Whether an agent would run on the node of a Pod; if that is not known, it would."""
    labels = nodes.get(pod.node)
    return labels is None or wanted.node_selector.items() <= labels.items()


def _free(seen: Seen, port: int) -> int:
    taken: FrozenSet[int] = frozenset().union(*(pod.host_ports for pod in seen.pods))
    return next(other for other in range(port + 2, 65536) if other not in taken)


def _admission(
    wanted: Wanted, existing: Optional[Existing], seen: Seen, accepted: AbstractSet[str]
) -> Iterator[Obstacle]:
    namespace = seen.namespace
    if namespace is None:
        if not wanted.labels_namespace:
            yield Obstacle(
                "namespace",
                f"there is no namespace {wanted.namespace}, and purelb_install_manage_namespace is "
                "false",
                "Create it, or leave that to the role",
                stops=True,
            )
        return
    is_labelled = namespace.level not in ("", _PRIVILEGED)
    labels_it = wanted.labels_namespace and namespace.is_ours
    by_security = is_labelled or ("PodSecurity" in seen.refusal and not labels_it)
    if by_security:
        level = namespace.level or "its default"
        # With the word, the installation sets the label itself.
        is_told = "podSecurity" in accepted and wanted.labels_namespace
        yield Obstacle(
            "podSecurity",
            f"Pod security in namespace {wanted.namespace} enforces {level}, and the agents, which "
            "change the network of their node, need privileged",
            "Set purelb_install_namespace to a namespace of PureLB's own; or, if nothing else "
            "shall be kept out of this one, add podSecurity to purelb_install_accept"
            if wanted.labels_namespace
            else f"Run kubectl label namespace {wanted.namespace} "
            "pod-security.kubernetes.io/enforce=privileged --overwrite",
            stops=not is_told,
        )
    elif seen.refusal and "PodSecurity" not in seen.refusal:
        yield Obstacle(
            "admission",
            f"the API server would refuse the agents' Pods in namespace {wanted.namespace}: "
            f"{seen.refusal}",
            "Allow them there, or set purelb_install_namespace to another one; if it is a mistake, "
            "add admission to purelb_install_accept",
            # A quota that the present Pods have used up lets their successors in.
            stops=existing is None and "admission" not in accepted,
        )


def _others(wanted: Wanted, existing: Optional[Existing], seen: Seen) -> Iterator[Obstacle]:
    if not _claims_more(wanted, existing):
        return
    for manager, services in sorted(seen.others.items()):
        yield Obstacle(
            "addresses",
            f"{manager} has given addresses to {_count(services)} without a loadBalancerClass: "
            f"{few(services)}",
            "If it runs no more, PureLB keeps those of its own pools and replaces the others. If "
            "it runs, both would write; see purelb_install_claim_unclassed",
            stops=False,
        )


def _count(services: Sequence[str]) -> str:
    return "one Service" if len(services) == 1 else f"{len(services)} Services"


def _service_proxy(seen: Seen) -> Iterator[Obstacle]:
    if seen.service_proxy.mode == "ipvs" and not seen.service_proxy.has_strict_arp:
        yield Obstacle(
            "strictARP",
            "kube-proxy is in IPVS mode without strictARP: every node without the fence (see the "
            "event FenceIncomplete) will answer ARP for the address of every Service, and clients "
            "will send to any of them",
            "Set ipvs.strictARP in the ConfigMap kube-proxy of kube-system, and restart its Pods",
            stops=False,
        )

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Everything that takes the place of a v1 configuration, after what people decided.

The proposals come from migrate; here a decision goes before a proposal, node agents come along, and
all objects get the namespace that v2 is in. What is still to be decided keeps its question. Nothing
is written here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from ipaddress import ip_network
from typing import Any, Collection, Dict, Iterable, List, Mapping, Set, Tuple

from ..addresses import parse_subnets, subnet_order
from ..errors import ObjectError, PureLBError, SettingError
from ..model import Address, Network, PoolType
from ..names import API_GROUP, API_VERSION, OLD_API_VERSION
from .convert import convert, reference, v1_entries
from .service_groups import (
    GroupProposal,
    GroupReason,
    Json,
    Object,
    as_people_write,
    convert_groups,
    pools_of,
)

# Take what is proposed, and ask no more.
PROPOSED = "proposed"
CHOICES = (PoolType.LOCAL.value, PoolType.REMOTE.value, PROPOSED)
# What no decision changes, and why.
_FIXED = {
    GroupReason.NETBOX: "v2 announces what a NetBox gives as remote",
    GroupReason.WRITTEN_IN_V2: "the group was written in v2, which says it already",
}


@dataclass(frozen=True)
class AgentProposal:
    """What a v1 LBNodeAgent becomes, and what is to be known of it."""

    agent: str
    body: Object
    warning: str


@dataclass(frozen=True)
class Replacements:
    """The v2 objects in the place of all v1 objects, and how each came to be."""

    groups: Tuple[GroupProposal, ...]
    agents: Tuple[AgentProposal, ...]

    @property
    def objects(self) -> Tuple[Object, ...]:
        """What is to be applied, groups first."""
        groups = (body for proposal in self.groups for body in proposal.groups)
        return (*groups, *(agent.body for agent in self.agents))

    @property
    def questions(self) -> Dict[str, str]:
        """What a human has to decide or to correct, by group."""
        return {one.group: one.question for one in self.groups if one.question}


def plan_replacements(
    bodies: Iterable[Json],
    *,
    subnets: Iterable[Network],
    decisions: Mapping[str, str],
    namespace: str,
) -> Replacements:
    """The v2 objects for v1 objects; `decisions` is one of CHOICES by a group's name."""
    found = tuple(bodies)
    _check_bodies(found)
    groups = [body for body in found if body["kind"] == "ServiceGroup"]
    _check_decisions(decisions, {_name(body) for body in groups})
    # A cluster without groups has nothing that could be local or remote.
    proposals = convert_groups(groups, subnets) if groups else ()
    settled = [_settled(one, decisions.get(_name_in(one.group), "")) for one in proposals]
    return Replacements(
        tuple(replace(one, groups=_moved(one.groups, namespace)) for one in settled),
        tuple(_agent(body, namespace) for body in found if body["kind"] == "LBNodeAgent"),
    )


def _name(body: Json) -> str:
    return str(body["metadata"]["name"])


def _name_in(group: str) -> str:
    """The name in `ServiceGroup namespace/name`."""
    return group.rpartition("/")[2]


def _check_bodies(bodies: Iterable[Json]) -> None:
    """Raise an error unless all are v1 objects that can live in one namespace."""
    taken: Set[Tuple[str, str]] = set()
    for body in bodies:
        where = reference(body)
        if body.get("kind") not in ("ServiceGroup", "LBNodeAgent"):
            raise ObjectError(where, "kind", "must be ServiceGroup or LBNodeAgent: leave it out")
        if body.get("apiVersion") != f"{API_GROUP}/{OLD_API_VERSION}":
            text = f"must be {API_GROUP}/{OLD_API_VERSION}: leave out what is of another version"
            raise ObjectError(where, "apiVersion", text)
        meta = body.get("metadata")
        if not isinstance(meta, dict) or not meta.get("name"):
            raise ObjectError(where, "metadata.name", "is missing")
        key = (body["kind"], meta["name"])
        if key in taken:
            text = "is taken in another namespace, and v2 has one for all: rename one of them"
            raise ObjectError(where, "metadata.name", text)
        taken.add(key)


def _check_decisions(decisions: Mapping[str, str], known: Collection[str]) -> None:
    for name, choice in decisions.items():
        if choice not in CHOICES:
            raise SettingError(f"decisions: {name}: must be one of {', '.join(CHOICES)}")
        if name not in known:
            there = ", ".join(sorted(known)) or "none"
            raise SettingError(f"decisions: {name}: there is no such ServiceGroup, only {there}")


def _settled(proposal: GroupProposal, choice: str) -> GroupProposal:
    """The proposal after a decision about it."""
    if not choice or proposal.reason is GroupReason.INVALID:
        return proposal
    if choice == PROPOSED:
        return replace(proposal, question="")
    if proposal.reason in _FIXED:
        if choice in proposal.groups[0]["spec"] or (
            proposal.reason is GroupReason.NETBOX and choice == PoolType.REMOTE.value
        ):
            return replace(proposal, question="")
        text = f"{_FIXED[proposal.reason]}: leave it out, or write {PROPOSED}"
        raise SettingError(f"decisions: {proposal.group}: cannot be {choice}, as {text}")
    # All ranges in one group again, also where two were proposed.
    body = {**proposal.groups[0], "spec": {choice: pools_of(proposal.ranges)}}
    return replace(proposal, reason=GroupReason.DECIDED, groups=(body,), question="")


def warning_of(proposal: GroupProposal) -> str:
    """What follows from a decision that looks wrong, or nothing."""
    if proposal.reason is not GroupReason.DECIDED or "local" not in proposal.groups[0]["spec"]:
        return ""
    outside = (GroupReason.OUTSIDE_NODE_SUBNETS, GroupReason.HOST_ROUTE)
    far = ", ".join(str(one.range) for one in proposal.ranges if one.reason in outside)
    return f"no node has a subnet for {far}, so nobody announces those" if far else ""


def _moved(bodies: Iterable[Object], namespace: str) -> Tuple[Object, ...]:
    return tuple(
        {**body, "metadata": {**body["metadata"], "namespace": namespace}} for body in bodies
    )


def _agent(body: Json, namespace: str) -> AgentProposal:
    (new,) = _moved([as_people_write(convert(body, to=API_VERSION))], namespace)
    is_silent = new["spec"]["local"].get("garpConfig", {}).get("enabled") is False
    warning = (
        "announces no address that it gains, as in v1 (sendgarp), so hosts learn late that it has "
        "moved: set spec.local.garpConfig.enabled to true unless you know why not"
    )
    return AgentProposal(reference(body), new, warning if is_silent else "")


def nearby(bodies: Iterable[Json], addresses: Iterable[Address]) -> Tuple[Network, ...]:
    """Subnets of nodes as far as their addresses show them.

    A Node object tells addresses without masks, so the subnet of each v1 range that holds one is
    taken for the node's. The addresses themselves stand for what no range knows.
    """
    known = frozenset(addresses)
    texts = [text for body in bodies for text in _subnet_texts(body)]
    subnets, _malformed = parse_subnets(texts)
    held = {subnet for subnet in subnets if any(address in subnet for address in known)}
    return tuple(sorted(held | set(map(_host, known)), key=subnet_order))


def _subnet_texts(body: Json) -> List[str]:
    spec = body.get("spec")
    local: Any = spec.get("local") if isinstance(spec, dict) else None
    try:
        entries = v1_entries(local) if isinstance(local, dict) else {}
    except PureLBError:
        return []  # a group that cannot be read is told by who converts it
    return [
        str(entry.get("subnet"))
        for some in entries.values()
        for entry in some
        if isinstance(entry, dict)
    ]


def _host(address: Address) -> Network:
    return ip_network(address)


def as_dict(takeover: Replacements) -> Object:
    """The module's answer."""
    return {
        "groups": [_group_dict(one) for one in takeover.groups],
        "node_agents": [
            {
                "agent": one.agent,
                "becomes": reference(one.body).partition(" ")[2],
                "warning": one.warning,
            }
            for one in takeover.agents
        ],
        "objects": list(takeover.objects),
        "questions": [
            {"group": group, "question": question} for group, question in takeover.questions.items()
        ],
    }


def _group_dict(proposal: GroupProposal) -> Object:
    return {
        "group": proposal.group,
        "reason": proposal.reason.value,
        "question": proposal.question,
        "warning": warning_of(proposal),
        "becomes": [
            {"name": body["metadata"]["name"], "source": source}
            for body in proposal.groups
            for source in body["spec"]
            if source in ("local", "remote", "netbox", "external")
        ],
        "ranges": [
            {
                "range": str(one.range),
                "subnet": str(one.range.subnet),
                "proposed": one.pool_type.value,
                "reason": one.reason.value,
            }
            for one in proposal.ranges
        ],
    }

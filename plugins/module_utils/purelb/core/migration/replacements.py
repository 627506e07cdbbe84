# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The v2 objects that replace a v1 configuration, after the operator's decisions.

The proposals come from service_groups. Here a decision overrides a proposal, LBNodeAgents are
converted, and all objects get v2's namespace. Open decisions keep their question. Nothing is
written to a cluster.
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
    convert_groups,
    pools_of,
    without_server_fields,
)

# Accept the proposal without further questions.
PROPOSED = "proposed"
CHOICES = (PoolType.LOCAL.value, PoolType.REMOTE.value, PROPOSED)
# Proposals that no decision can change, and the reason.
_FIXED = {
    GroupReason.NETBOX: "v2 announces addresses from NetBox as remote",
    GroupReason.WRITTEN_IN_V2: "the group was written in v2, which specifies it",
}


@dataclass(frozen=True)
class AgentProposal:
    """The v2 object for a v1 LBNodeAgent, and a warning or an empty text."""

    agent: str
    body: Object
    warning: str


@dataclass(frozen=True)
class Replacements:
    """The v2 objects that replace all v1 objects, with the proposals they come from."""

    groups: Tuple[GroupProposal, ...]
    agents: Tuple[AgentProposal, ...]

    @property
    def objects(self) -> Tuple[Object, ...]:
        """The objects to apply, groups first."""
        groups = (body for proposal in self.groups for body in proposal.groups)
        return (*groups, *(agent.body for agent in self.agents))

    @property
    def questions(self) -> Dict[str, str]:
        """What the operator has to decide or correct, by group."""
        return {group.group: group.question for group in self.groups if group.question}


def plan_replacements(
    bodies: Iterable[Json],
    *,
    subnets: Iterable[Network],
    decisions: Mapping[str, str],
    namespace: str,
) -> Replacements:
    """Return the v2 objects for v1 objects; `decisions` maps groups to one of CHOICES."""
    found = tuple(bodies)
    _check_bodies(found)
    groups = [body for body in found if body["kind"] == "ServiceGroup"]
    _check_decisions(decisions, {_name(body) for body in groups})
    # Without groups there is nothing to propose, and subnets may be unknown.
    proposals = convert_groups(groups, subnets) if groups else ()
    settled = [
        _settled(proposal, decisions.get(_name_in(proposal.group), "")) for proposal in proposals
    ]
    return Replacements(
        tuple(replace(done, groups=_moved(done.groups, namespace)) for done in settled),
        tuple(_agent(body, namespace) for body in found if body["kind"] == "LBNodeAgent"),
    )


def _name(body: Json) -> str:
    return str(body["metadata"]["name"])


def _name_in(group: str) -> str:
    """Return the name in `ServiceGroup namespace/name`."""
    return group.rpartition("/")[2]


def _check_bodies(bodies: Iterable[Json]) -> None:
    """Raise an ObjectError unless all are v1 objects with unique names."""
    taken: Set[Tuple[str, str]] = set()
    for body in bodies:
        where = reference(body)
        if body.get("kind") not in ("ServiceGroup", "LBNodeAgent"):
            raise ObjectError(where, "kind", "must be ServiceGroup or LBNodeAgent: leave it out")
        if body.get("apiVersion") != f"{API_GROUP}/{OLD_API_VERSION}":
            text = f"must be {API_GROUP}/{OLD_API_VERSION}: leave out objects of other versions"
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
            names = ", ".join(sorted(known)) or "none"
            raise SettingError(f"decisions: {name}: there is no such ServiceGroup, only {names}")


def _settled(proposal: GroupProposal, choice: str) -> GroupProposal:
    """Return the proposal after the operator's decision about it."""
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
    # All ranges in one group again, even if two groups were proposed.
    body = {**proposal.groups[0], "spec": {choice: pools_of(proposal.ranges)}}
    return replace(proposal, reason=GroupReason.DECIDED, groups=(body,), question="")


def warning_of(proposal: GroupProposal) -> str:
    """Return a warning about a questionable decision, or an empty text."""
    if proposal.reason is not GroupReason.DECIDED or "local" not in proposal.groups[0]["spec"]:
        return ""
    outside = (GroupReason.OUTSIDE_NODE_SUBNETS, GroupReason.HOST_ROUTE)
    far = ", ".join(str(found.range) for found in proposal.ranges if found.reason in outside)
    return f"no node has a subnet for {far}, so no node announces them" if far else ""


def _moved(bodies: Iterable[Object], namespace: str) -> Tuple[Object, ...]:
    return tuple(
        {**body, "metadata": {**body["metadata"], "namespace": namespace}} for body in bodies
    )


def _agent(body: Json, namespace: str) -> AgentProposal:
    (new,) = _moved([without_server_fields(convert(body, to=API_VERSION))], namespace)
    is_silent = new["spec"]["local"].get("garpConfig", {}).get("enabled") is False
    warning = (
        "does not announce a gained address, as in v1 (sendgarp), so hosts learn late that it has "
        "moved: set spec.local.garpConfig.enabled to true unless this is intended"
    )
    return AgentProposal(reference(body), new, warning if is_silent else "")


def nearby_subnets(bodies: Iterable[Json], addresses: Iterable[Address]) -> Tuple[Network, ...]:
    """Return the subnets of nodes, as far as their addresses show them.

    A Node object has addresses without masks, so the subnet of each v1 range that contains one is
    assumed to be the node's. The addresses themselves are added as host networks.
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
        return []  # the conversion reports an invalid group
    return [
        str(entry.get("subnet"))
        for some in entries.values()
        for entry in some
        if isinstance(entry, dict)
    ]


def _host(address: Address) -> Network:
    return ip_network(address)


def as_dict(replacements: Replacements) -> Object:
    """Return the module's result."""
    return {
        "groups": [_group_dict(proposal) for proposal in replacements.groups],
        "node_agents": [
            {
                "agent": agent.agent,
                "becomes": reference(agent.body).partition(" ")[2],
                "warning": agent.warning,
            }
            for agent in replacements.agents
        ],
        "objects": list(replacements.objects),
        "questions": [
            {"group": group, "question": question}
            for group, question in replacements.questions.items()
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
                "range": str(found.range),
                "subnet": str(found.range.subnet),
                "proposed": found.pool_type.value,
                "reason": found.reason.value,
            }
            for found in proposal.ranges
        ],
    }

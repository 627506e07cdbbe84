# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Findings about the programs: Nodes without an agent, no leading allocator, mixed versions."""

from __future__ import annotations

from collections import defaultdict
from typing import Dict, Iterable, Iterator, List, Mapping, Sequence, Tuple

from ..api.nodes import NodeView
from ..api.workloads import Program, ProgramPod
from ..election.draining import draining_taint
from ..election.members import Standing
from ..fence.gaps import Gap, parse_gaps, remedy_of, without_fence
from ..leadership.locks import LockReport, LockState
from ..names import DRAINING_TAINTS, EXCLUDE_LABEL
from ..texts import few
from .findings import Finding, Severity, node_title
from .lock_findings import UNTAKEN
from .report import LeaseReport, NodeReport, NodeState

# Seconds. A node is repaired, or gone, long before.
_FORGOTTEN = 3600.0


def node_reports(
    nodes: Iterable[NodeView], leases: Iterable[LeaseReport], agents: Program
) -> Tuple[NodeReport, ...]:
    """Return the state of each Node, sorted by name."""
    lease_of = {report.lease.node: report for report in leases}
    pods: Dict[str, List[ProgramPod]] = defaultdict(list)
    for pod in agents.pods:
        pods[pod.node].append(pod)
    return tuple(
        _node_report(node, lease_of.get(node.info.name), pods[node.info.name], agents)
        for node in sorted(nodes, key=lambda node: node.info.name)
    )


def _node_report(
    node: NodeView, lease: "LeaseReport | None", pods: Sequence[ProgramPod], agents: Program
) -> NodeReport:
    name = node.info.name
    # While one is being replaced there are two.
    pod = min(pods, key=lambda pod: len(pod.problems), default=ProgramPod(""))
    if lease is not None and lease.is_live:
        return NodeReport(name, NodeState.LIVE, "", pod.name, node.is_ready)
    exclusion = "" if pod.name else agents.exclusion(node.info)
    if exclusion and agents.is_present:
        is_meant = EXCLUDE_LABEL in node.info.labels
        state = NodeState.EXEMPT if is_meant else NodeState.EXCLUDED
        return NodeReport(name, state, exclusion, "", node.is_ready)
    state, reason = NodeState.DOWN, "; ".join(pod.problems)
    if not pod.name:
        reason = "no Pod of the agent is there"
    elif not reason and lease is None:
        reason = f"it has no Lease, although Pod {pod.name} is ready"
    elif not reason:
        state, reason = NodeState.SILENT, f"Pod {pod.name} is ready and does not renew the Lease"
    if not node.is_ready:
        state, reason = NodeState.DOWN, f"the Node is not Ready; {reason}"
    return NodeReport(name, state, reason, pod.name, node.is_ready)


def node_findings(reports: Iterable[NodeReport], agents: Program) -> Iterator[Finding]:
    """Yield findings about Nodes without a working agent."""
    if not agents.is_present:
        yield _without_agent(
            agents.title, "does not exist: no Node has an agent", "run the role purelb_install"
        )
        return
    excluded: Dict[str, List[str]] = defaultdict(list)
    for report in reports:
        if report.state is NodeState.EXCLUDED:
            excluded[report.reason].append(report.node)
        elif report.state is NodeState.DOWN:
            yield _without_agent(node_title(report.node), report.reason, _remedy(report, agents))
    for reason, names in sorted(excluded.items()):
        yield _without_agent(
            agents.title,
            f"puts no agent on {few(names)}: {reason}",
            "change purelb_install_agent_node_selector or purelb_install_agent_tolerations; if it "
            f"is intended, label these Nodes {EXCLUDE_LABEL}",
        )


def _without_agent(about: str, message: str, remediation: str) -> Finding:
    return Finding(Severity.WARNING, "nodeWithoutAgent", about, message, remediation)


def _remedy(report: NodeReport, agents: Program) -> str:
    if not report.is_ready:
        return f"kubectl describe node {report.node}"
    if report.pod:
        return f"see description and log of Pod {report.pod}"
    return f"see the events of {agents.title}"


def taint_findings(
    nodes: Iterable[NodeView], reports: Iterable[NodeReport], *, wall_time: float
) -> Iterator[Finding]:
    """Yield findings about draining taints on nodes that are up and stay up."""
    live = {report.node for report in reports if report.state is NodeState.LIVE}
    for node in nodes:
        name, taint = node.info.name, draining_taint(node.info.taints)
        age = None if node.tainted is None else wall_time - node.tainted
        if taint and node.is_ready and name in live and (age is None or age > _FORGOTTEN):
            since = "it is unknown since when" if age is None else f"for {age / 3600:.0f} h"
            yield Finding(
                Severity.WARNING,
                "forgottenTaint",
                node_title(name),
                f"is up and has the draining taint {taint}, {since}: its addresses are elsewhere",
                f"if the node stays: kubectl taint node {name} {taint}-",
            )


def node_state_findings(
    reports: Iterable[NodeReport], leases: Iterable[LeaseReport]
) -> Iterator[Finding]:
    """Yield findings about nodes that renew their Lease and hardly serve."""
    found = tuple(leases)
    drained = {lease.lease.node for lease in found if lease.standing is Standing.DRAINED}
    for report in reports:
        is_broken = report.state is NodeState.LIVE and not report.is_ready
        if is_broken and report.node not in drained:
            yield Finding(
                Severity.WARNING,
                "nodeNotReady",
                node_title(report.node),
                "is not Ready, and its agent renews its Lease: it keeps its addresses, which is "
                "right only while it takes their traffic",
                f"kubectl describe node {report.node}; if it is broken, shut it down or give it "
                f"the taint {DRAINING_TAINTS[0]}",
            )
    for lease in found:
        if lease.standing is Standing.ILL:
            yield Finding(
                Severity.WARNING,
                "serviceProxyDown",
                node_title(lease.lease.node),
                "its kube-proxy does not answer, so it gets an address only if no other node can "
                "have it",
                "see kube-proxy on this node; curl --include localhost:10256/healthz shows there "
                "what the agent sees",
            )
        gaps = parse_gaps(lease.lease.fence) if lease.is_live else ()
        if gaps and gaps != (("", Gap.OFF),):
            yield Finding(
                Severity.WARNING,
                "fenceIncomplete",
                node_title(lease.lease.node),
                without_fence(gaps),
                remedy_of(gaps),
            )


def leader_findings(lock: LockReport, allocator: Program) -> Iterator[Finding]:
    """Yield a finding if no allocator leads."""
    is_free = lock.state is LockState.RELEASED
    if lock.state is LockState.HELD or (is_free and lock.age is not None and lock.age <= UNTAKEN):
        return
    problems = [problem for pod in allocator.pods for problem in pod.problems]
    reason = "; ".join(problems)
    if not allocator.is_present:
        reason = f"{allocator.title} does not exist"
    elif not allocator.pods:
        reason = f"{allocator.title} has no Pod"
    elif not reason:
        reason = f"the Pods of {allocator.title} are ready, and this lock is {lock.state.value}"
    yield Finding(
        Severity.ERROR,
        "allocatorWithoutLeader",
        str(lock.name),
        f"no allocator leads, so no Service gets an address: {reason}",
        f"see the Pods of {allocator.title} and their logs",
    )


def version_findings(programs: Sequence[Program]) -> Iterator[Finding]:
    """Yield findings about Pods with another image than their program, and programs that differ."""
    for program in programs:
        old: Mapping[str, str] = {
            pod.name: pod.image for pod in program.pods if pod.image != program.image
        }
        if old:
            yield Finding(
                Severity.WARNING,
                "versionsDiffer",
                program.title,
                f"has the image {program.image}, and {few(sorted(old))} "
                f"{', '.join(sorted(set(old.values())))}",
                "finish the rollout; purelb_rollout_info says what it waits for",
            )
    images = {program.image for program in programs if program.is_present}
    if len(images) > 1:
        yield Finding(
            Severity.WARNING,
            "versionsDiffer",
            " and ".join(program.title for program in programs),
            f"have different images: {', '.join(sorted(images))}",
            "run the role purelb_install with one image for both",
        )

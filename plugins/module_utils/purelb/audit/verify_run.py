# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Combines the state of the cluster with the observations, for the module purelb_verify."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import OK, HTTPConnection, HTTPException
from ipaddress import IPv6Address
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..core.addresses import parse_address, parse_mac
from ..core.audit.evidence import Evidence, NeighborReply, format_mac
from ..core.audit.findings import Severity, finding_dict
from ..core.audit.lock_findings import lock_findings
from ..core.audit.node_addresses import own_addresses
from ..core.audit.report import Report, report_dict
from ..core.audit.verify import Verification, verify
from ..core.election.draining import NodeInfo
from ..core.errors import PureLBError
from ..core.model import Address
from ..module.kube import Cluster
from . import cluster_reader
from .vip_info import observation_of

_METRICS_TIMEOUT = 2
# Threads, so that the timeouts of silent nodes pass concurrently.
_WORKERS = 64
# Options of up to a megabyte, which the result must not repeat as `invocation`.
_LARGE_OPTIONS = frozenset({"nodes", "answers"})
_COUNTED = {"error": (Severity.ERROR,), "warning": tuple(Severity), "never": ()}


def verification(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: ARG001, FBT001 - reading is the same in check mode
    """The work of the module purelb_verify."""
    # First, as invalid observations are an error, and parsing them needs no request.
    observations = tuple(observation_of(node, seen) for node, seen in params["nodes"].items())
    answers = answers_of(params["answers"])
    namespace = params["namespace"]
    seen = cluster_reader.read_installation(cluster, namespace=namespace)
    configs = cluster_reader.read_configs(cluster, namespace=namespace)
    report = cluster_reader.audited(seen)
    report = report.with_findings(lock_findings([seen.lock], allocators=seen.lock.name))
    known = [node.info for node in seen.nodes]
    evidence = Evidence(
        observations=observations,
        answers=answers,
        groups=seen.groups.valid,
        configs=tuple(configs),
        labels={node.name: node.labels for node in known},
        known=own_addresses(seen.nodes, report.leases),
        unread=params["unread"],
        silent=silent_nodes(report, known, params),
        unasked=params["unasked"],
        examined=frozenset(params["examine"]),
    )
    found = verify(report, evidence)
    options = {name: value for name, value in params.items() if name not in _LARGE_OPTIONS}
    return {
        "changed": False,
        **as_dict(report, found, answers),
        **outcome(found, params),
        "invocation": {"module_args": options},
    }


def answers_of(results: Iterable[Mapping[str, Any]]) -> Tuple[NeighborReply, ...]:
    """Returns the results of purelb_neighbor_info, merged over all hosts that sent requests."""
    macs: Dict[Address, Tuple[bytes, ...]] = {}
    own: Dict[Address, bool] = {}
    try:
        for result in results:
            address = parse_address(result["address"])
            heard = (*macs.get(address, ()), *map(parse_mac, result["macs"]))
            macs[address] = tuple(sorted(set(heard)))
            own[address] = own.get(address, False) or bool(result["own"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise PureLBError(
            f"answers: is not what purelb_neighbor_info returns as answers ({error!r})"
        ) from error
    return tuple(NeighborReply(address, macs[address], own[address]) for address in macs)


def silent_nodes(
    report: Report, known: Iterable[NodeInfo], params: Mapping[str, Any]
) -> Dict[str, str]:
    """Returns why metrics cannot be read, by node with a live Lease; empty unless requested."""
    if not params["check_metrics"]:
        return {}
    live = {lease.lease.node for lease in report.leases if lease.is_live}
    nodes = [node for node in known if node.name in live]
    with ThreadPoolExecutor(_WORKERS) as pool:
        causes = pool.map(lambda node: _silence(node, params["metrics_port"]), nodes)
        return {node.name: cause for node, cause in zip(nodes, causes) if cause}  # noqa: B905 - equally long, and Python 3.9


def _silence(node: NodeInfo, port: int) -> Optional[str]:
    """Returns why no address of a node serves metrics; None if one does."""
    causes: List[str] = []
    for address in sorted(node.addresses, key=lambda a: (a.version, int(a))):
        cause = _metrics_failure(address, port)
        if cause is None:
            return None
        host = f"[{address}]" if isinstance(address, IPv6Address) else str(address)
        causes.append(f"http://{host}:{port}/metrics: {cause}")
    return "; ".join(causes) or "its Node has no address to read metrics from"


def _metrics_failure(address: Address, port: int) -> Optional[str]:
    # Not with Ansible's client: importing it takes longer than verifying a small cluster.
    connection = HTTPConnection(str(address), port, timeout=_METRICS_TIMEOUT)
    with closing(connection):
        try:
            connection.request("GET", "/metrics")
            status = connection.getresponse().status
        except (OSError, HTTPException) as error:
            return str(error)
    return None if status == OK else f"HTTP status {status}"


def outcome(found: Verification, params: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the counts of findings, and a failure depending on `fail_on`."""
    counts = {
        severity: sum(finding.severity is severity for finding in found.findings)
        for severity in Severity
    }
    result: Dict[str, Any] = {f"{severity.value}_count": n for severity, n in counts.items()}
    counted = [each for each in found.findings if each.severity in _COUNTED[params["fail_on"]]]
    if counted:
        first = counted[0]
        result["failed"] = True
        result["msg"] = (
            f"{counts[Severity.ERROR]} errors and {counts[Severity.WARNING]} warnings; the first: "
            f"{first.code}: {first.object}: {first.message}. Remediation: {first.remediation}"
        )
    return result


def as_dict(
    report: Report, found: Verification, answers: Sequence[NeighborReply]
) -> Dict[str, Any]:
    """Returns the audit's report with holders and replying MACs of each address."""
    replies = {reply.address: reply for reply in answers}
    result = report_dict(report)
    for entry, vip in zip(result["vips"], report.vips):  # noqa: B905 - equally long, and Python 3.9
        address = vip.vip.address
        entry["holders"] = [
            {"node": held.node, "interface": held.link.name, "mac": format_mac(held.link.mac)}
            for held in found.holdings.get(address, ())
        ]
        reply = replies.get(address)
        entry["macs"] = None if reply is None else list(map(format_mac, reply.macs))
    result["findings"] = [finding_dict(finding) for finding in found.findings]
    return result

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Brings together what the cluster says and what was seen, for the module purelb_verify."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import OK, HTTPConnection, HTTPException
from ipaddress import IPv6Address
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from ..core.addresses import parse_address
from ..core.audit import audit
from ..core.audit.evidence import Evidence, NeighborReply, format_mac
from ..core.audit.findings import Severity, finding_dict
from ..core.audit.lock_findings import lock_findings
from ..core.audit.verify import Verification, verify
from ..core.election.draining import NodeInfo
from ..core.errors import PureLBError
from ..core.model import Address
from ..module.kube import Cluster
from . import cluster_reader
from .vip_info import mac_of, observation_of

_METRICS_TIMEOUT = 2
# Most of them answer at once; those that do not are waited for together.
_WORKERS = 64
# What was seen may be a megabyte, which Ansible would otherwise get back with the options.
_SEEN = frozenset({"nodes", "answers"})
_COUNTED = {"error": (Severity.ERROR,), "warning": tuple(Severity), "never": ()}


def verification(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: ARG001, FBT001 - reading is the same in check mode
    """The work of the module purelb_verify."""
    # First of all, as it may be refused: what was seen is read without asking anybody.
    observations = tuple(observation_of(node, seen) for node, seen in params["nodes"].items())
    answers = answers_of(params["answers"])
    namespace = params["namespace"]
    services = cluster_reader.read_services(cluster)
    groups = cluster_reader.read_groups(cluster, namespace=namespace)
    configs = cluster_reader.read_configs(cluster, namespace=namespace)
    known = cluster_reader.read_nodes(cluster)
    report = cluster_reader.read_report(
        cluster, services, known, namespace=namespace, groups=groups
    )
    leads = cluster_reader.read_locks(cluster, None, namespace=namespace)
    report = report.with_findings(lock_findings(leads))
    evidence = Evidence(
        observations=observations,
        answers=answers,
        groups=tuple(groups),
        configs=tuple(configs),
        labels={one.name: one.labels for one in known},
        known=frozenset().union(*(one.addresses for one in known)),
        unread=params["unread"],
        silent=silent_nodes(report, known, params),
    )
    found = verify(report, evidence)
    asked = {name: value for name, value in params.items() if name not in _SEEN}
    return {
        "changed": False,
        **as_dict(report, found, answers),
        **outcome(found, params),
        "invocation": {"module_args": asked},
    }


def answers_of(results: Iterable[Mapping[str, Any]]) -> Tuple[NeighborReply, ...]:
    """What purelb_neighbor_info heard; of several hosts that were asked, all of it together."""
    macs: Dict[Address, Tuple[bytes, ...]] = {}
    own: Dict[Address, bool] = {}
    try:
        for one in results:
            address = parse_address(one["address"])
            heard = (*macs.get(address, ()), *map(mac_of, one["macs"]))
            macs[address] = tuple(sorted(set(heard)))
            own[address] = own.get(address, False) or bool(one["own"])
    except (KeyError, TypeError, ValueError, AttributeError) as problem:
        raise PureLBError(
            f"answers: is not what purelb_neighbor_info returns as answers ({problem!r})"
        ) from problem
    return tuple(NeighborReply(address, macs[address], own[address]) for address in macs)


def silent_nodes(
    report: audit.Report, known: Iterable[NodeInfo], params: Mapping[str, Any]
) -> Dict[str, str]:
    """Why the metrics of nodes with a live Lease cannot be read, if that is asked for."""
    if not params["check_metrics"]:
        return {}
    live = {one.lease.node for one in report.leases if one.is_live}
    asked = [one for one in known if one.name in live]
    with ThreadPoolExecutor(_WORKERS) as pool:
        causes = pool.map(lambda one: _silence(one, params["metrics_port"]), asked)
        return {one.name: cause for one, cause in zip(asked, causes) if cause}  # noqa: B905 - equally long, and Python 3.9


def _silence(node: NodeInfo, port: int) -> Optional[str]:
    """Why no address of a node answers for its metrics; None if one does."""
    causes: List[str] = []
    for address in sorted(node.addresses, key=lambda a: (a.version, int(a))):
        problem = _metrics_problem(address, port)
        if problem is None:
            return None
        host = f"[{address}]" if isinstance(address, IPv6Address) else str(address)
        causes.append(f"http://{host}:{port}/metrics: {problem}")
    return "; ".join(causes) or "its Node has no address to read metrics from"


def _metrics_problem(address: Address, port: int) -> Optional[str]:
    # Not by Ansible's own client: importing it takes longer than to verify a small cluster.
    connection = HTTPConnection(str(address), port, timeout=_METRICS_TIMEOUT)
    with closing(connection):
        try:
            connection.request("GET", "/metrics")
            status = connection.getresponse().status
        except (OSError, HTTPException) as problem:
            return str(problem)
    return None if status == OK else f"HTTP status {status}"


def outcome(found: Verification, params: Mapping[str, Any]) -> Dict[str, Any]:
    """How many findings there are, and whether they make the module fail."""
    counts = {
        severity: sum(one.severity is severity for one in found.findings) for severity in Severity
    }
    result: Dict[str, Any] = {f"{severity.value}_count": n for severity, n in counts.items()}
    counted = [one for one in found.findings if one.severity in _COUNTED[params["fail_on"]]]
    if counted:
        first = counted[0]
        result["failed"] = True
        result["msg"] = (
            f"{counts[Severity.ERROR]} errors and {counts[Severity.WARNING]} warnings; the first: "
            f"{first.code}: {first.object}: {first.message}. What to do: {first.remediation}"
        )
    return result


def as_dict(
    report: audit.Report, found: Verification, answers: Sequence[NeighborReply]
) -> Dict[str, Any]:
    """The audit's report with who holds and who answers for each address."""
    heard = {one.address: one for one in answers}
    result = audit.as_dict(report)
    for entry, vip in zip(result["vips"], report.vips):  # noqa: B905 - equally long, and Python 3.9
        address = vip.vip.address
        entry["holders"] = [
            {"node": one.node, "interface": one.link.name, "mac": format_mac(one.link.mac)}
            for one in found.holdings.get(address, ())
        ]
        answer = heard.get(address)
        entry["macs"] = None if answer is None else list(map(format_mac, answer.macs))
    result["findings"] = [finding_dict(one) for one in found.findings]
    return result

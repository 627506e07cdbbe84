# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Rotates the key that the node agents sign questions to their peers with.

The core says which step is next and which agents are not ready for it. Here the Secret is read and
written, and the agents' Leases are awaited. No key leaves this module, only ids of keys.
"""

from __future__ import annotations

import base64
import secrets
import time
from dataclasses import dataclass
from typing import Any, Dict, List, Mapping, Tuple

from ..audit import cluster_reader
from ..core.audit.audit import audit
from ..core.holding.peer_keys import (
    NEXT,
    PREVIOUS,
    SIGNING,
    PeerKeys,
    RotationStep,
    after_step,
    next_step,
    not_ready,
    parse_keys,
)
from ..core.names import PEER_SECRET
from ..module.errors import CONFLICT, ApiError, ClusterError
from ..module.kube import Cluster, Kind
from ..module.polling import poll

SECRETS = Kind("", "v1", "secrets", namespaced=True)
_NAMES = (SIGNING, NEXT, PREVIOUS)
# Seconds between two looks at the Leases: the kubelets take a minute or two.
_INTERVAL = 2.0

Data = Dict[str, bytes]


@dataclass(frozen=True)
class _Agents:
    """The ids of keys that live agents have in their Leases, and the nodes without a live agent."""

    published: Mapping[str, Tuple[str, ...]]
    absent: Tuple[str, ...]


def rotate(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_rotate_peer_key."""
    namespace, seconds = params["namespace"], params["wait_timeout"]
    data, version = _read(cluster, namespace)
    keys, agents = _keys(data, namespace), _agents(cluster, namespace)
    steps: List[RotationStep] = []
    # The last step of a rotation that an earlier run began ends this run, too.
    while RotationStep.REMOVE not in steps:
        if not check_mode:
            _wait(cluster, namespace, keys, seconds)
        steps.append(next_step(data))
        data = after_step(data, steps[-1], new=secrets.token_hex(32).encode())
        if not check_mode:
            version = _write(cluster, namespace, data, version)
            keys = _keys(data, namespace)
    if not check_mode:
        agents = _wait(cluster, namespace, keys, seconds)
    return _answer(keys, steps, agents)


def _answer(keys: PeerKeys, steps: List[RotationStep], agents: _Agents) -> Dict[str, Any]:
    names = ", ".join(agents.absent)
    warning = (
        f"without a live agent, and not waited for: {names}. When one comes back, its peers "
        "answer it as soon as its kubelet has refreshed the Secret, within two minutes"
    )
    return {
        "changed": True,
        "steps": [step.value for step in steps],
        "key_id": keys.ids[0],
        "nodes": sorted(agents.published),
        "warnings": [warning] if agents.absent else [],
    }


def _read(cluster: Cluster, namespace: str) -> Tuple[Data, str]:
    """Return the keys in the Secret, and its resource version."""
    secret = cluster.get(SECRETS, namespace=namespace, name=PEER_SECRET)
    if secret is None:
        raise ClusterError(
            f"there is no Secret {namespace}/{PEER_SECRET}: set namespace to that of PureLB, or "
            "install PureLB with purelb_install_outage_hold, without which agents need no key"
        )
    found = secret.get("data") or {}
    data = {name: base64.b64decode(found[name]) for name in _NAMES if found.get(name)}
    return data, secret["metadata"]["resourceVersion"]


def _keys(data: Data, namespace: str) -> PeerKeys:
    keys = parse_keys(data)
    if keys is None:
        raise ClusterError(
            f"the Secret {namespace}/{PEER_SECRET} has no {SIGNING!r}: delete it, install PureLB "
            "again, which creates it, and restart the agents"
        )
    return keys


def _write(cluster: Cluster, namespace: str, data: Data, version: str) -> str:
    """Write the keys, unless another program has changed the Secret; return its new version."""
    encoded = {name: base64.b64encode(data[name]).decode() for name in data}
    patch = {
        "metadata": {"resourceVersion": version},
        "data": {name: encoded.get(name) for name in _NAMES},
    }
    try:
        written = cluster.patch(SECRETS, namespace=namespace, name=PEER_SECRET, patch=patch)
    except ApiError as error:
        if error.status != CONFLICT:
            raise
        raise ClusterError(
            f"another user or program changed the Secret {namespace}/{PEER_SECRET}: "
            "run this again to continue the rotation"
        ) from error
    return str(written["metadata"]["resourceVersion"])


def _agents(cluster: Cluster, namespace: str) -> _Agents:
    leases = cluster_reader.read_leases(cluster, namespace=namespace)
    reports = audit(leases, (), wall_time=time.time()).leases
    agents = _Agents(
        {report.lease.node: report.lease.peer_keys for report in reports if report.is_live},
        tuple(sorted(report.lease.node for report in reports if not report.is_live)),
    )
    if not agents.published:
        raise ClusterError(
            f"no agent renews its Lease in namespace {namespace}, so none can say which keys it "
            "has: see that they run, and compare the clocks of this machine and the nodes"
        )
    return agents


def _wait(cluster: Cluster, namespace: str, keys: PeerKeys, seconds: int) -> _Agents:
    """Return the agents when all have read these keys."""
    agents = poll(
        lambda: _agents(cluster, namespace),
        lambda found: not not_ready(keys, found.published),
        timeout=seconds,
        interval=_INTERVAL,
    )
    late = not_ready(keys, agents.published)
    if late:
        causes = "; ".join(
            f"{node} has {' and '.join(ids)}"
            if ids
            else f"{node} names no keys: its agent is of an older version, or does not ask peers"
            for node, ids in late.items()
        )
        raise ClusterError(
            f"not all agents have read the keys {' and '.join(keys.ids)} within {seconds} s: "
            f"{causes}. Every key that is in use is still accepted. Upgrade or restart these "
            "agents, or see peerKeysKept in their logs, then run this again to continue"
        )
    return agents

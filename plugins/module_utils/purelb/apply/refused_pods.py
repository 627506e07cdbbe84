# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Why the controller of a DaemonSet or Deployment cannot make its Pods."""

from __future__ import annotations

from typing import List

from ..module.errors import FORBIDDEN, ApiError
from ..module.kube import Cluster, Kind, Object

EVENTS = Kind("", "v1", "events", namespaced=True)
REPLICA_SETS = Kind("apps", "v1", "replicasets", namespaced=True)


def refused_pods(cluster: Cluster, workload: Object) -> List[str]:
    """Returns what the API server said last to each controller of a workload (`FailedCreate`).

    Quota, Pod security or a webhook, for example. Empty if the user may not list events.
    """
    metadata = workload["metadata"]
    try:
        makers = {metadata["uid"], *_owned(cluster, workload)}
        events = cluster.read_all(
            EVENTS,
            namespace=metadata["namespace"],
            convert=dict,
            fieldSelector="reason=FailedCreate",
        )
    except ApiError as error:
        if error.status != FORBIDDEN:
            raise
        return []
    last = {
        event["involvedObject"]["name"]: f"FailedCreate: {event.get('message', '')}"
        for event in sorted(events, key=lambda event: event.get("lastTimestamp") or "")
        if event["involvedObject"].get("uid") in makers
    }
    return list(last.values())


def _owned(cluster: Cluster, workload: Object) -> List[str]:
    """Returns the UIDs of a Deployment's ReplicaSets: they make its Pods."""
    metadata = workload["metadata"]
    if workload.get("kind") != "Deployment":
        return []
    found = cluster.read_all(REPLICA_SETS, namespace=metadata["namespace"], convert=dict)
    return [
        obj["metadata"]["uid"]
        for obj in found
        if any(o["uid"] == metadata["uid"] for o in obj["metadata"].get("ownerReferences") or ())
    ]

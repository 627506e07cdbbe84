# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers of allocation tests: pools of either family, waiting for addresses and events."""

from __future__ import annotations

import pytest

from tests.support.lab.cluster_queries import eventually, ingress

GROUPS = "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases"
EVENTS = "/api/v1/namespaces/{}/events"
# By family: its name, the address without the host's number, and the subnet of the nodes.
V4 = ("IPv4", "172.28.1.", "172.28.1.0/24")
V6 = ("IPv6", "fd28:0:0:1::", "fd28:0:0:1::/64")
FAMILIES = [pytest.param(V4, id="v4"), pytest.param(V6, id="v6")]


def pool_entry(family, first, last):
    """Return a pool of hosts first to last; the numbers are decimal digits in IPv6, too."""
    _name, start, subnet = family
    return {"pool": f"{start}{first}-{start}{last}", "subnet": subnet}


def unreachable_pool(family, number, first, last):
    """Return a pool in a subnet of no node."""
    start = f"10.9.{number}." if family is V4 else f"fd99:{number}::"
    subnet = f"{start}0/24" if family is V4 else f"{start}/64"
    return {"pool": f"{start}{first}-{start}{last}", "subnet": subnet}


def pools(family, *entries):
    return {f"v{family[0][-1]}pools": list(entries)}


def wait_for_addresses(cluster, path, *addresses):
    """Wait until the Service has exactly these addresses."""
    eventually(lambda: ingress(cluster.api.get(path)) == list(addresses), f"{addresses} on {path}")


def wait_for_event(cluster, path_or_name, reason, words):
    """Wait for an event about an object with these words in its message; return the message."""
    path = path_or_name if "/" in path_or_name else f"{GROUPS}/{path_or_name}"
    name = path.rpartition("/")[2]
    # By the UID: on a lab that had tests before, an older object of this name has events, too.
    uid = cluster.api.get(path)["metadata"]["uid"]
    namespace = "default" if "/services/" in path_or_name else "purelb-system"

    def found():
        events = cluster.api.items(
            EVENTS.format(namespace), fieldSelector=f"involvedObject.uid={uid},reason={reason}"
        )
        return [e["message"] for e in events if words in e["message"]]

    return eventually(found, f"event {reason} about {name} with {words!r}")[0]


def status_of(cluster, group):
    return cluster.api.get(f"{GROUPS}/{group}").get("status", {})


def condition(cluster, group, kind):
    conditions = status_of(cluster, group).get("conditions", [])
    found = [c for c in conditions if c["type"] == kind]
    return found[0] if found else {}


def address(family, number):
    return f"{family[1]}{number}"

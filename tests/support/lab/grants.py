# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers of allocation tests: pools of both families, waiting for addresses and events."""

from __future__ import annotations

from tests.support.lab.cluster_queries import eventually, ingress

GROUPS = "/apis/purelb.io/v2/namespaces/purelb-system/servicegroups"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/purelb-system/leases"
EVENTS = "/api/v1/namespaces/{}/events"
# IPv4, then IPv6: an address without the host's number, and the subnet of the nodes.
STARTS = ("172.28.1.", "fd28:0:0:1::")
SUBNETS = ("172.28.1.0/24", "fd28:0:0:1::/64")


def both(*numbers):
    """Return the hosts' IPv4 addresses, then their IPv6 addresses, as a Service's status does.

    The numbers are decimal digits in IPv6, too.
    """
    return tuple(f"{start}{number}" for start in STARTS for number in numbers)


def entry(first, last):
    """Return the pools of hosts first to last, of IPv4 and of IPv6."""
    return tuple(
        {"pool": f"{start}{first}-{start}{last}", "subnet": subnet}
        for start, subnet in zip(STARTS, SUBNETS, strict=True)
    )


def unreachable_entry(number, first, last):
    """Return pools in subnets of no node."""
    starts = (f"10.9.{number}.", f"fd99:{number}::")
    subnets = (f"10.9.{number}.0/24", f"fd99:{number}::/64")
    return tuple(
        {"pool": f"{start}{first}-{start}{last}", "subnet": subnet}
        for start, subnet in zip(starts, subnets, strict=True)
    )


def pools(*entries):
    """Return the pools of both families for a ServiceGroup."""
    return {
        "v4pools": [v4 for v4, _v6 in entries],
        "v6pools": [v6 for _v4, v6 in entries],
    }


def wait_for_addresses(cluster, path, *addresses):
    """Wait until the Service has exactly these addresses."""
    eventually(lambda: ingress(cluster.api.get(path)) == list(addresses), f"{addresses} on {path}")


def wait_for_event(cluster, path_or_name, reason, words):
    """Wait for an event about an object with these words in its message; return the message."""
    path = path_or_name if "/" in path_or_name else f"{GROUPS}/{path_or_name}"
    name = path.rpartition("/")[2]
    # By the UID: on a lab that had tests before, an older object of this name has events, too.
    uid = cluster.api.get(path)["metadata"]["uid"]
    namespace = path.partition("/namespaces/")[2].partition("/")[0]

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

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A second segment of all nodes and the client: 172.28.9.0/24 and fd28:0:0:9::/64 on eth9."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from labkit.lab import Lab
from labkit.net.namespaces import ip_batch
from tests.support.lab.faults import ip, wait_for_candidates

NETS = "172.28.9.0/24", "fd28:0:0:9::/64"
_GROUP = {
    "apiVersion": "purelb.io/v2",
    "kind": "ServiceGroup",
    "metadata": {"name": "lan9", "namespace": "purelb-system"},
    "spec": {
        "local": {
            "v4pool": {"pool": "172.28.9.220-172.28.9.250", "subnet": NETS[0]},
            "v6pool": {"pool": "fd28:0:0:9::220-fd28:0:0:9::2ff", "subnet": NETS[1]},
        }
    },
}
_AGENT = {
    "apiVersion": "purelb.io/v2",
    "kind": "LBNodeAgent",
    "metadata": {"name": "lan9", "namespace": "purelb-system"},
    "spec": {"local": {"interfaces": ["eth9"]}},
}


def own_addresses(lab: Lab, host: str) -> tuple[str, str]:
    """Return the addresses of a host in this segment, without masks."""
    number = lab.hosts[host].v4.rpartition(".")[2]
    return f"172.28.9.{number}", f"fd28:0:0:9::{number}"


def plug(lab: Lab, host: str) -> None:
    """Add the interface to a host."""
    v4, v6 = own_addresses(lab, host)
    ip(
        lab,
        host,
        "link add link eth0 name eth9 type macvlan mode bridge",
        f"addr add {v4}/24 dev eth9",
        f"addr add {v6}/64 dev eth9 nodad",
        "link set eth9 up",
    )


@contextmanager
def lan_9(lab: Lab) -> Iterator[dict[str, str]]:
    """Add the segment with its own pool; yields the annotations of a Service that asks for it."""
    for host in (*lab.nodes, "client"):
        plug(lab, host)
    try:
        lab.api.apply(_AGENT)
        lab.api.apply(_GROUP)
        # Until all have written their Leases, an address goes to one that has, then moves.
        wait_for_candidates(lab, *NETS)
        yield {"purelb.io/service-group": "lan9"}
    finally:
        for thing in (_GROUP, _AGENT):
            lab.api.delete(lab.api.path_of(thing))
        for host in (*lab.nodes, "client"):
            # A failed test may have removed it already.
            ip_batch(["link del eth9"], namespace=lab.hosts[host].netns, force=True)

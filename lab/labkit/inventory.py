# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""An Ansible inventory of the lab's hosts.

A host of the lab shares the machine's files and processes, so a local connection will do; only the
Python that runs a module is started in the host's network namespace.
"""

import json
import sys

from labkit.namespaces import inside
from labkit.topology import Host, Topology


def inventory(topology: Topology) -> str:
    """Return the inventory: all nodes in purelb_nodes, the client in purelb_segment."""
    groups = {
        "purelb_nodes": topology.nodes,
        "purelb_segment": (topology.host("client"),),
    }
    return json.dumps(
        {
            name: {"hosts": {host.name: _variables(host) for host in hosts}}
            for name, hosts in groups.items()
        },
        indent=1,
    )


def _variables(host: Host) -> dict[str, str | bool]:
    return {
        "ansible_connection": "local",
        "ansible_python_interpreter": " ".join(inside(host.netns, [sys.executable])),
        # Whoever has a lab is root.
        "ansible_become": False,
    }

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""An Ansible inventory of the lab's hosts.

A host of the lab shares the machine's files and processes, so connections are local; only the
Python that runs a module is started in the host's network namespace.
"""

import json
import shlex
import sys
from pathlib import Path

from labkit.cluster.nodes import BINDS, SOCKET
from labkit.host.places import Places
from labkit.images.programs import programs
from labkit.net.namespaces import inside
from labkit.topology import Host, Topology


def inventory(at: Places, topology: Topology) -> str:
    """Return the inventory: all nodes in purelb_nodes, the client in purelb_segment."""
    groups = {
        "purelb_nodes": topology.nodes,
        "purelb_segment": (topology.host("client"),),
        "ungrouped": (topology.host("control"), topology.host("router")),
    }
    return json.dumps(
        {
            name: {"hosts": {host.name: _variables(at, host) for host in hosts}}
            for name, hosts in groups.items()
        },
        indent=1,
    )


def _variables(at: Places, host: Host) -> dict[str, str | bool]:
    variables: dict[str, str | bool] = {
        "ansible_connection": "local",
        "ansible_python_interpreter": str(_python(at, host)),
        # A lab's user is root already.
        "ansible_become": False,
    }
    if host.is_node:
        # The path of the socket outside the node's mount namespace.
        socket = at.run / host.name / BINDS["/run/containerd"] / Path(SOCKET).name
        client = [str(programs(at).ctr), "--address", str(socket)]
        variables["purelb_install_ctr"] = shlex.join(client)
    return variables


def _python(at: Places, host: Host) -> Path:
    """Write a script to the run folder that starts Python in a host's network namespace."""
    path = at.run / f"python-{host.name}"
    command = shlex.join(inside(host.netns, [sys.executable]))
    path.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    path.chmod(0o755)
    return path

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Debian's keepalived on the nodes of the lab, with its defaults.

Each address is a VRRP instance of its own, and each node is preferred by a third of them, as with
PureLB. A Service has the addresses as external IPs, so kube-proxy serves them.
"""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from bench import bed
from labkit.errors import LabError
from labkit.host import packages
from labkit.lab import Lab
from purelb.core.addresses import parse_address

_PROGRAM = packages.BENCH["keepalived"]
_V4, _V6 = "172.29.32.{}", "fd28:0:0:1::2:{:x}"
_PREFERRED, _STEP = 200, 50
_INSTANCE = """\
vrrp_instance {name} {{
    state BACKUP
    interface eth0
    virtual_router_id {number}
    priority {priority}
    virtual_ipaddress {{
        {address}
    }}
}}
"""


def version() -> str:
    """Return the version of the program. Raises LabError if it is not installed."""
    if not Path(_PROGRAM).exists():
        raise LabError(f"there is no {_PROGRAM}: 'make bench' installs it")
    done = subprocess.run([_PROGRAM, "--version"], text=True, capture_output=True, check=True)
    return done.stderr.split()[1].removeprefix("v")


def addresses(count: int) -> list[str]:
    """Return so many addresses of each family."""
    texts = [pattern.format(n) for pattern in (_V4, _V6) for n in range(1, count + 1)]
    return [str(parse_address(text)) for text in texts]


def preferred(vips: Sequence[str], nodes: Sequence[str]) -> dict[str, str]:
    """Return the node that each address is on while all are up."""
    return {vip: nodes[_number(vip) % len(nodes)] for vip in vips}


def _number(vip: str) -> int:
    return int(vip.rpartition(":")[2], 16) if ":" in vip else int(vip.rpartition(".")[2])


def configuration(vips: Iterable[str], node: str, nodes: Sequence[str]) -> str:
    """Return the configuration of one node."""
    blocks = [f"global_defs {{\n    router_id {node}\n}}\n"]
    for vip in vips:
        number, is_v6 = _number(vip), ":" in vip
        away = (nodes.index(node) - number) % len(nodes)
        blocks.append(
            _INSTANCE.format(
                name=f"{'v6' if is_v6 else 'v4'}_{number}",
                number=number,
                priority=_PREFERRED - _STEP * away,
                address=f"{vip}/{64 if is_v6 else 16} dev eth0",
            )
        )
    return "".join(blocks)


def service(vips: Sequence[str]) -> dict[str, Any]:
    """Return the Service that has the addresses as external IPs."""
    body = bed.service(0)
    body["metadata"]["name"] = "keepalived"
    body["spec"] |= {"type": "ClusterIP", "externalIPs": [*vips]}
    return body


class Keepalived:
    """The daemon of one node, in its network namespace."""

    def __init__(self, lab: Lab, node: str, vips: Sequence[str], folder: Path) -> None:
        self._lab, self._node = lab, node
        self._files = folder / node
        self._files.mkdir(parents=True, exist_ok=True)
        (self._files / "conf").write_text(configuration(vips, node, list(lab.nodes)))
        self._parent: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        files = {"--use-file": "conf", "--pid": "pid", "--vrrp_pid": "vrrp"}
        argv = [_PROGRAM, "--dont-fork", "--log-console", "--vrrp"]
        argv += [f"{option}={self._files / name}" for option, name in files.items()]
        with (self._files / "log").open("ab") as log:
            self._parent = self._lab.popen_in(self._node, argv, stdout=log, stderr=log)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its two processes."""
        if self._parent is None:
            return
        # From the kernel: a file may be of a process that has ended, or not be written yet.
        parent = self._parent.pid
        children = Path(f"/proc/{parent}/task/{parent}/children").read_text().split()
        for pid in (parent, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        """Stop it as an administrator does, and wait for it."""
        if self._parent is not None:
            self._parent.terminate()
            self._parent.wait(10)
            self._parent = None

    def kill(self) -> None:
        """Kill it."""
        self.signal(signal.SIGKILL)
        if self._parent is not None:
            self._parent.wait(10)
            self._parent = None

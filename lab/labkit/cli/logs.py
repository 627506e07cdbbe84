# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Find and show the logs of components and pods."""

import subprocess
from pathlib import Path

from labkit.errors import Problem
from labkit.host.places import Places


def find(at: Places) -> dict[str, Path]:
    """Return the log files by name: `n1.kubelet`, or `n1/namespace/pod/container/0` of a pod."""
    found = {p.stem: p for p in sorted((at.run / "logs").glob("*.[lj]*"))}
    for path in sorted(at.run.glob("*/pods/*/*/*.log")):
        node = path.relative_to(at.run).parts[0]
        namespace, pod, _uid = path.parts[-3].split("_")
        found[f"{node}/{namespace}/{pod}/{path.parts[-2]}/{path.stem}"] = path
    return found


def show(at: Places, name: str | None, *, follow: bool, lines: int) -> int:
    """List the logs, or print the end of those whose names contain `name`; return an exit code."""
    known = find(at)
    if not known:
        raise Problem("there are no logs: no lab is up; start one with 'lab up'")
    if name is None:
        for log, path in known.items():
            print(f"{path.stat().st_size:10} {log}")
        return 0
    chosen = [path for log, path in known.items() if log == name or name in log.split("/")]
    chosen = chosen or [path for log, path in known.items() if name in log]
    if not chosen:
        raise Problem(f"no log has {name!r} in its name: 'lab logs' lists them")
    flags = ["-n", str(lines), *(["-F"] if follow else [])]
    return subprocess.run(["tail", *flags, *map(str, chosen)], check=False).returncode

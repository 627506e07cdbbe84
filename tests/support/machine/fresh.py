# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the README's commands in a new Debian that has only what the README asks for.

A folder made by debootstrap, with make and Python, with this machine's Go, with a clone of the
last commit. Its processes and mounts are in namespaces of their own and end with this program.
From this machine come the kernel, the network, and the caches of Go, pip and apt, without which it
would take a quarter of an hour longer.

    python -m tests.support.machine.fresh                 # all of it, with the minutes of each step
    python -m tests.support.machine.fresh 'make lint'     # only this
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from labkit.host import cgroups
from labkit.host.places import Places, cgroup_of
from labkit.host.processes import command_of, descendants, wait_until
from labkit.images import rootfs
from labkit.topology import MAX_LABS
from tests.support import ROOT
from tests.support.machine.view import needed_programs

FOLDER = ROOT / ".cache/fresh"
# What README.md asks for; Go is this machine's.
INCLUDE = ("make", "python3")
CHECKOUT = "/root/purelb"
GO = "/usr/local/go"
# As the new machine sees them.
_PLACES = Places(cache=Path(CHECKOUT, ".cache/lab"))
# The line after which the set-up is interrupted, and how much later.
MIDDLE, LATER = "Debian tree: building", 10.0
_BUNDLE = Path("/etc/ssl/certs/ca-certificates.crt")
_AUTHORITIES = "usr/local/share/ca-certificates"
# How this machine reaches package sources; by the beginning of a variable's name, in any case.
_REACH = ("http_proxy", "https_proxy", "no_proxy", "all_proxy", "pip_", "goproxy", "gosumdb")
_SECONDS = 30.0  # in which an interrupted command, and all that it has started, must have ended

_ENTER = """
set -e
cd "$1"; shift
mount --make-rprivate /
mount --bind . .
cd "$PWD"
mount -t proc proc proc
mount --rbind /sys sys
mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run
while [ $# -gt 0 ]; do
  mkdir -p "./$2"; mount --bind "$1" "./$2"; shift 2
done
pivot_root . mnt
umount --lazy /mnt
# The first process of a namespace gets all orphans; this way, they vanish when they end.
trap '' CHLD
exec sleep infinity
"""


Step = Callable[[], None]


class Failed(Exception):  # noqa: N818 - reads as a sentence
    """A step did not do what it must; the message is one line."""


def main() -> int:
    """Make the machine, run the commands in it, and remove it."""
    os.umask(0o022)
    begin = time.monotonic()
    took: list[tuple[str, float]] = []
    try:
        with new_machine() as machine:
            took.append(("make the machine", time.monotonic() - begin))
            for name, step in _steps(machine, sys.argv[1:]):
                start = time.monotonic()
                print(f"== {name}", flush=True)
                step()
                took.append((name, time.monotonic() - start))
    except (Failed, subprocess.CalledProcessError) as error:
        print(f"fresh: {error}", file=sys.stderr)
        return 1
    finally:
        for name, seconds in took:
            print(f"{seconds / 60:6.1f} min  {name}")
    return 0


def _steps(machine: Machine, commands: Sequence[str]) -> list[tuple[str, Step]]:
    if commands:
        return [(command, lambda command=command: machine.run(command)) for command in commands]
    return [
        ("make demo, interrupted in the middle of its set-up", machine.interrupt),
        ("make demo", lambda: machine.run("make demo")),
        ("make demo, again", lambda: machine.run("make demo")),
        ("make lab-down", lambda: machine.run("make lab-down")),
        ("look for what is left", machine.check_nothing_left),
        ("make lint unit", lambda: machine.run("make lint unit")),
    ]


class Machine:
    """A new Debian in namespaces of its own."""

    def __init__(self, keeper: int) -> None:
        """Use the namespaces of the keeper, which this process can see."""
        self._keeper = keeper

    def _argv(self, command: str) -> list[str]:
        enter = ["nsenter", f"--target={self._keeper}", "--mount", "--pid", "--"]
        shell = f"cd {CHECKOUT} && {command}"
        return [*enter, "env", "-i", "--default-signal=INT", *_environment(), "bash", "-c", shell]

    def run(self, command: str) -> None:
        """Run a command as the newcomer types it. Raises Failed if it fails."""
        done = subprocess.run(self._argv(command), stdin=subprocess.DEVNULL, check=False)
        if done.returncode:
            raise Failed(f"{command!r} ended with {done.returncode} in {FOLDER}/root")

    def interrupt(self) -> None:
        """Press Ctrl-C while `make demo` builds; everything that it started must end."""
        with subprocess.Popen(
            self._argv("make demo"), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            text=True, start_new_session=True,
        ) as process:  # fmt: skip
            for line in process.stdout or ():
                print(line, end="", flush=True)
                if line.startswith(MIDDLE):
                    time.sleep(LATER)
                    os.killpg(process.pid, signal.SIGINT)
        if process.returncode == 0:
            raise Failed("'make demo' succeeded although it was interrupted")
        self._check_ended("the interrupted 'make demo'")

    def _check_ended(self, what: str) -> None:
        if not wait_until(lambda: not descendants([self._keeper]), seconds=_SECONDS):
            left = sorted(command_of(pid) for pid in descendants([self._keeper]))
            raise Failed(f"{what} left for {_SECONDS:.0f} s: {'; '.join(left)}")

    def check_nothing_left(self) -> None:
        """Find what a lab has left: processes, namespaces, links, mounts.

        The mount of /run/netns itself stays: the first `ip netns add` of a machine makes it.
        """
        self._check_ended("'make lab-down'")
        self.run('[ ! -d /run/netns ] || [ -z "$(ls /run/netns)" ]')
        self.run('[ -z "$(ip -brief link | grep ^lab)" ]')
        self.run("! grep -E ' /run/netns/|/\\.cache/lab' /proc/self/mounts")


@contextmanager
def new_machine() -> Iterator[Machine]:
    """Make the folder and the namespaces; remove both at the end, however that comes."""
    root = FOLDER / "root"
    shutil.rmtree(root, ignore_errors=True)
    try:
        _make(root)
        argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--", "bash", "-c", _ENTER]
        mounts = [word for pair in _mounts() for word in pair]
        with subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", *argv, "bash", str(root), *mounts],
            stdin=subprocess.DEVNULL,
        ) as process:
            try:
                yield Machine(_keeper(process))
            finally:
                process.kill()
    finally:
        shutil.rmtree(root)
        for number in range(MAX_LABS):  # of labs that were not ended
            cgroups.remove(cgroup_of(replace(_PLACES, number=number).run))


def _keeper(process: subprocess.Popen[bytes]) -> int:
    """Return the first process of the namespaces as soon as it has changed its root."""

    def found() -> list[int]:
        names = {pid: Path(f"/proc/{pid}/comm") for pid in descendants([process.pid])}
        return [
            pid for pid, path in names.items() if path.exists() and path.read_text() == "sleep\n"
        ]

    if not wait_until(lambda: bool(found()) or process.poll() is not None, seconds=10):
        raise Failed("the namespaces were not made within 10 s")
    if process.returncode is not None:
        raise Failed("the namespaces could not be made: see above")
    return found()[0]


def _make(root: Path) -> None:
    debs = FOLDER / "debs"
    debs.mkdir(parents=True, exist_ok=True)
    rootfs.bootstrap(root, FOLDER / "debootstrap.log", include=INCLUDE, cache=debs)
    for name in ("resolv.conf", "hosts"):
        shutil.copy(f"/etc/{name}", root / "etc")
    clone = ["git", "clone", "--quiet", str(ROOT), f"{root}{CHECKOUT}"]
    subprocess.run(clone, check=True)
    _trust(root)


def _trust(root: Path) -> None:
    """Let the new machine trust what this one trusts, as soon as it has a program for that."""
    folder = root / _AUTHORITIES
    folder.mkdir(parents=True)
    end = "-----END CERTIFICATE-----\n"
    for number, text in enumerate(_BUNDLE.read_text().split(end)[:-1]):
        (folder / f"{number}.crt").write_text(text.lstrip() + end)


def _mounts() -> Iterator[tuple[str, str]]:
    """Yield folders of this machine and where the new one has them, without the first slash."""
    go = needed_programs()["go"]
    yield str(go), GO.lstrip("/")
    for variable, target in (
        ("GOMODCACHE", "root/go/pkg/mod"),
        ("GOCACHE", "root/.cache/go-build"),
    ):
        shown = subprocess.run(["go", "env", variable], text=True, capture_output=True, check=True)
        yield _made(shown.stdout.strip()), target
    pip = [sys.executable, "-m", "pip", "cache", "dir"]
    shown = subprocess.run(pip, text=True, capture_output=True, check=True)
    yield _made(shown.stdout.strip()), "root/.cache/pip"
    yield _made(str(FOLDER / "archives")), "var/cache/apt/archives"
    for wheels in shlex.split(os.environ.get("PIP_FIND_LINKS", "")):
        if Path(wheels).is_dir():
            yield wheels, wheels.lstrip("/")


def _made(folder: str) -> str:
    Path(folder).mkdir(parents=True, exist_ok=True)
    return folder


def _environment() -> list[str]:
    path = f"{GO}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    reach = {k: v for k, v in os.environ.items() if k.lower().startswith(_REACH)}
    mine = {**reach, "HOME": "/root", "PATH": path, "TERM": "dumb"}
    return [f"{name}={value}" for name, value in mine.items()]


if __name__ == "__main__":
    sys.exit(main())

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The agent makes a dummy interface: on a user-mode Linux, as not every kernel has the type.

That kernel's root is this machine's, read-only, so that it runs this checkout's Python and agent.
Its memory is a file in /dev/shm, mapped executable; where that is mounted noexec, set TMPDIR.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import ROOT
from tests.support.lab.dummy_link_program import ADDRESSES

pytestmark = pytest.mark.timeout(60)
SECONDS = 40  # boot and program take 3 on an idle machine
INIT = f"""\
#!/bin/sh
mount -t proc proc /proc
modprobe --dirname ${{0%/*}} --all ipv6 dummy
export PYTHONPATH={ROOT}/agent:{ROOT}/plugins/module_utils PYTHONDONTWRITEBYTECODE=1
{sys.executable} {ROOT}/tests/support/lab/dummy_link_program.py
echo o > /proc/sysrq-trigger
sleep 10
"""


def boot(folder: Path) -> str:
    """What the kernel and its first process print; no process of it is left."""
    init = folder / "init"
    init.write_text(INIT)
    init.chmod(0o755)
    (folder / "lib").mkdir()
    (folder / "lib/modules").symlink_to("/usr/lib/uml/modules")
    command = [
        *("linux.uml", "mem=128M", "quiet", f"uml_dir={folder}/", "umid=uml"),
        *("root=/dev/root", "rootfstype=hostfs", "rootflags=/", "ro", f"init={init}"),
        *("con=null", "con0=null,fd:1"),
    ]
    with subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # its processes are processes of this machine, in one group
    ) as kernel:
        try:
            return kernel.communicate(timeout=SECONDS)[0]
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(kernel.pid, signal.SIGKILL)


@pytest.fixture(scope="module")
def seen(tmp_path_factory):
    """What the program saw, step by step."""
    output = boot(tmp_path_factory.mktemp("uml"))
    lines = [line for line in output.splitlines() if line.startswith("{")]
    assert len(lines) == 1, output
    return json.loads(lines[0])


def test_it_is_up_and_marked_as_soon_as_it_is_made(seen):
    assert seen["before"] is None
    assert seen["made"] | {"index": 0} == {
        "index": 0, "is_up": True, "alias": "purelb", "addresses": []
    }  # fmt: skip


def test_addresses_of_both_families_go_on_it(seen):
    assert seen["used"] == seen["made"] | {"addresses": sorted(ADDRESSES)}


def test_made_again_it_is_the_same(seen):
    assert seen["made again"] == seen["used"]


def test_a_link_that_was_there_is_not_marked(seen):
    assert seen["somebody else's"]["alias"] == ""


def test_it_can_be_removed_twice(seen):
    assert seen["removed"] is None

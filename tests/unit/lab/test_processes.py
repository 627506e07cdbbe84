# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""A process counts as alive as long as one of its threads runs."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from labkit.host.processes import Process, end, wait_until

# The first thread ends alone, by the bare system call; another thread keeps the port open.
HALF_ENDED = """
import ctypes, platform, socket, threading, time
port = socket.create_server(("127.0.0.1", 0))
print(port.getsockname()[1], flush=True)
threading.Thread(target=time.sleep, args=(60,)).start()
ctypes.CDLL(None).syscall({"x86_64": 60, "aarch64": 93}[platform.machine()], 0)
"""


def state_of(pid):
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.fixture
def start():
    """Starts Python with a program; waits for all of them after the test."""
    started = []

    def begin(text):
        program = [sys.executable, "-c", text]
        started.append(subprocess.Popen(program, stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield begin
    for child in started:
        child.kill()
        child.wait()
        child.stdout.close()


def test_zombie_with_a_running_thread_is_alive_until_killed(start):
    child = start(HALF_ENDED)
    port = int(child.stdout.readline())
    process = Process.of(child.pid)
    assert wait_until(lambda: state_of(child.pid) == "Z", seconds=5)
    assert process.is_alive
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", port))
    assert end([process]) == set()
    socket.create_server(("127.0.0.1", port)).close()


def test_zombie_without_threads_is_dead(start):
    child = start("")
    process = Process.of(child.pid)
    assert wait_until(lambda: state_of(child.pid) == "Z", seconds=5)
    assert not process.is_alive
    assert not process.send(0)

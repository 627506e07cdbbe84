# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Tests that leave something behind, run by test_leaks.py in a pytest of their own."""

from __future__ import annotations

import asyncio
import socket

import pytest

from tests.support.agent import leaks

# No server here needs time to close.
leaks.PATIENCE = 0.02
KEPT = []


async def fails():
    raise OSError("broken")


class Leaks:
    async def test_nothing(self):
        task = asyncio.create_task(asyncio.sleep(60))
        await asyncio.gather(asyncio.create_task(fails()), return_exceptions=True)
        near, far = socket.socketpair()
        _reader, writer = await asyncio.open_unix_connection(sock=near)
        writer.close()
        await writer.wait_closed()
        far.close()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def test_task(self):
        KEPT.append(asyncio.create_task(asyncio.sleep(60), name="renewer"))

    async def test_unread_exception(self):
        KEPT.append(asyncio.create_task(fails(), name="reporter"))
        await asyncio.wait({KEPT[-1]})

    async def test_failed_callback(self):
        asyncio.get_running_loop().call_soon(int, "x")
        await asyncio.sleep(0)

    async def test_transport(self):
        near, far = socket.socketpair()
        KEPT.append((far, await asyncio.open_unix_connection(sock=near)))

    async def test_reader(self):
        KEPT.append(socket.socketpair())
        asyncio.get_running_loop().add_reader(KEPT[-1][0], print)

    async def test_socket(self):
        KEPT.append(socket.socket())

    def test_socket_without_a_loop(self):
        KEPT.append(socket.socket())

    @pytest.fixture
    async def started(self):
        return asyncio.create_task(asyncio.sleep(60), name="watcher")

    async def test_task_of_a_fixture(self, started):
        pass


class TestVirtual(Leaks):
    pass


@pytest.mark.real_time
class TestReal(Leaks):
    pass

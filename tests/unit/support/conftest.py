# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The tools under test, wired as for the agent's tests."""

from __future__ import annotations

from tests.support.agent.plugin import (
    leak_check,
    no_leaks,
    pytest_asyncio_loop_factories,
    virtual_clock,
)

# What pytest finds here by name.
__all__ = ["leak_check", "no_leaks", "pytest_asyncio_loop_factories", "virtual_clock"]

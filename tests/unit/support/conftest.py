# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The tools under test, wired as for the agent's tests."""

from __future__ import annotations

from tests.support.agent.plugin import *  # noqa: F403 - pytest finds hooks and fixtures by name

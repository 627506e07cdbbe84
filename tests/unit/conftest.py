# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Hypothesis without limits of time, which a busy machine breaks and no test here is about."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("unit", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unit")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Let each test of Hypothesis take a minute, after its plugin has marked them.

    The first one in a fresh checkout makes Hypothesis's tables too: 10 s on a busy machine.
    """
    for item in items:
        if item.get_closest_marker("hypothesis"):
            item.add_marker(pytest.mark.timeout(60))

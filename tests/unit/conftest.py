# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Profiles of Hypothesis: `gate`, the default, and `random` (`--hypothesis-profile=random`).

The examples of `gate` are the same in every run, so that an unlucky one does not stop a change that
has nothing to do with it. Neither has limits of time, which a busy machine breaks and no test here
is about.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("gate", derandomize=True, **_SLOW)
settings.register_profile("random", derandomize=False, max_examples=1000, **_SLOW)
settings.load_profile("gate")


def pytest_collection_modifyitems(items):
    """Refuse tests whose name has a set in it: two workers would write it in different orders."""
    named_by_sets = [item.nodeid for item in items if "frozenset({" in item.nodeid]
    if named_by_sets:
        raise pytest.UsageError(f"give these tests ids without sets: {named_by_sets}")

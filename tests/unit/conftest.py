# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Profiles of Hypothesis: `gate`, the default, and `random` (`--hypothesis-profile=random`).

The examples of `gate` are the same in every run, so that an unlucky one does not stop a change that
has nothing to do with it. Neither has limits of time, which a busy machine breaks and no test here
is about.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings

_SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("gate", derandomize=True, **_SLOW)
settings.register_profile("random", derandomize=False, max_examples=1000, **_SLOW)
settings.load_profile("gate")

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Chance that a seed repeats.

Each source of chance has a stream of its own, named after what it is for. A fault that is taken out
of a schedule then leaves what the others draw as it was, so a failing schedule can be shrunk.
"""

from __future__ import annotations

import random


def stream(seed: int, *names: str) -> random.Random:
    """Return the generator of this name: the same numbers in each run with this seed."""
    # A text, because its use as a seed does not depend on Python's hashes.
    return random.Random("/".join((str(seed), *names)))  # noqa: S311 - no secret

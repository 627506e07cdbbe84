# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Parts of messages."""

from __future__ import annotations

from typing import Sequence


def few(names: Sequence[str], most: int = 5) -> str:
    """Return names as text: the first ones, and how many more there are."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Parser and formatter of Kubernetes timestamps."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Optional


def parse_time(text: Optional[str]) -> Optional[float]:
    """Return a timestamp as seconds since the epoch; None if it is missing or invalid."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def format_time(seconds: float) -> str:
    """Return seconds since the epoch as a Kubernetes MicroTime."""
    moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

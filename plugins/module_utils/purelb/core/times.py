# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Times as Kubernetes writes them."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Optional


def parse_time(text: Optional[str]) -> Optional[float]:
    """Seconds since the epoch of a Kubernetes time, with or without fractions, or None."""
    if not text:
        return None
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return None


def format_time(seconds: float) -> str:
    """Kubernetes MicroTime of seconds since the epoch."""
    moment = datetime.fromtimestamp(seconds, tz=timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Structured log: one line per transition, as JSON or as logfmt.

Fields are keyword arguments. A log event has the name that the decision's reason, the metric and
the Kubernetes event use, too.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any

LEVELS = ("debug", "info", "warning", "error")
FORMATS = ("logfmt", "json")
_LOGGER = logging.getLogger("purelb")


def _text(value: Any) -> str:
    text = str(value)
    plain = text and not any(c in text for c in ' "=\n')
    return text if plain else json.dumps(text, ensure_ascii=False)


class _Formatter(logging.Formatter):
    def __init__(self, *, as_json: bool) -> None:
        super().__init__()
        self._as_json = as_json

    def format(self, record: logging.LogRecord) -> str:
        moment = datetime.fromtimestamp(record.created, tz=UTC)
        fields: dict[str, Any] = {
            "ts": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "msg": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info:
            fields["trace"] = self.formatException(record.exc_info)
        if self._as_json:
            return json.dumps(fields, default=str, ensure_ascii=False)
        return " ".join(f"{key}={_text(value)}" for key, value in fields.items())


def configure(*, level: str, style: str) -> None:
    """Log to standard error from this level (of LEVELS) in this style (of FORMATS)."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Formatter(as_json=style == "json"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    _LOGGER.setLevel(level.upper())


def switch_debug(level: str) -> None:
    """Switch to level debug, or from debug back to this level."""
    is_debug = _LOGGER.level == logging.DEBUG
    _LOGGER.setLevel(level.upper() if is_debug else logging.DEBUG)
    warning("logLevel", level=level if is_debug else "debug")


def debug(event: str, **fields: Any) -> None:
    """Log a detail that helps to find a fault."""
    _LOGGER.debug(event, extra={"fields": fields})


def info(event: str, **fields: Any) -> None:
    """Log a transition."""
    _LOGGER.info(event, extra={"fields": fields})


def warning(event: str, **fields: Any) -> None:
    """Log an event that an operator should look at."""
    _LOGGER.warning(event, extra={"fields": fields})


def error(event: str, **fields: Any) -> None:
    """Log a failure that keeps the program from its work."""
    _LOGGER.error(event, extra={"fields": fields})


def crash(event: str, error: BaseException, **fields: Any) -> None:
    """Log an unexpected exception with its trace."""
    _LOGGER.error(event, extra={"fields": fields}, exc_info=error)

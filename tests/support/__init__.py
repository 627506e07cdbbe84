# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests, one package per subject; contains no tests."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[2]


def fail(error: BaseException) -> NoReturn:
    """Raise the error; for test doubles whose methods are lambdas."""
    raise error

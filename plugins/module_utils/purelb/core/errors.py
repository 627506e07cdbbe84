# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The errors that the core raises about its input; each text names the remedy."""

from __future__ import annotations


class PureLBError(Exception):
    """Base of every error that the core raises."""


class ObjectError(PureLBError):
    """An invalid Kubernetes object: `where` names it, `field` and `problem` what to correct."""

    def __init__(self, where: str, field: str, problem: str) -> None:
        super().__init__(f"{where}: {field}: {problem}")
        self.where = where
        self.field = field
        self.problem = problem


class SettingError(PureLBError):
    """An invalid setting (environment variable or option); the text names the broken rule."""

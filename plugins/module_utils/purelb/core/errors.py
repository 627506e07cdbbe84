# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""What can be wrong with input that the core is given. each text names the remedy."""

from __future__ import annotations


class PureLBError(Exception):
    """Base of every error that the core raises."""


class ObjectError(PureLBError):
    """A Kubernetes object that cannot be used: says which one, which field and what to write."""

    def __init__(self, where: str, field: str, problem: str) -> None:
        super().__init__(f"{where}: {field}: {problem}")
        self.where = where
        self.field = field
        self.problem = problem


class SettingError(PureLBError):
    """A setting (environment, option) that breaks a rule: says which rule."""

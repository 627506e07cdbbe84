# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("kubernetes")
from purelb.module import run
from purelb.module.errors import ClusterError


class EndError(Exception):
    """The module ended with a result."""


class FakeModule:
    """Records warnings and raises EndError with the result."""

    def __init__(self) -> None:
        self.params: dict[str, Any] = {"host": "https://api:6443"}
        self.no_log_values: set[str] = set()
        self.check_mode = False
        self.warnings: list[str] = []

    def warn(self, text: str) -> None:
        self.warnings.append(text)

    def exit_json(self, **result: Any) -> None:
        raise EndError(result)

    def fail_json(self, **result: Any) -> None:
        raise EndError(result)


def ended(module: FakeModule, work: Any) -> Any:
    with pytest.raises(EndError) as end:
        run.run(module, work)
    return end.value.args[0]


def test_warnings_are_displayed_and_not_in_the_result():
    module = FakeModule()
    result = ended(module, lambda *_args: {"changed": True, "warnings": ["look here"]})
    assert result == {"changed": True}
    assert module.warnings == ["look here"]


def test_an_error_becomes_the_message_of_the_failure():
    def work(*_args: Any) -> Any:
        raise ClusterError("refused")

    assert ended(FakeModule(), work) == {"msg": "refused"}


def test_only_what_is_secret_of_a_kubeconfig_is_hidden():
    module = FakeModule()
    user = {"name": "me", "user": {"token": "t0ken"}}
    module.params["kubeconfig"] = {"kind": "Config", "users": [user]}
    module.no_log_values = {"Config", "me", "t0ken", "of another option"}
    ended(module, lambda *_args: {})
    assert module.no_log_values == {"t0ken", "of another option"}

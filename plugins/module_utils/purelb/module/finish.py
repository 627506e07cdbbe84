# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Ends a module: the only place that turns errors into `fail_json`."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible.module_utils.basic import AnsibleModule

from ..core.errors import PureLBError
from .secrets import all_texts, secrets


def finish(module: AnsibleModule, work: Callable[[], Dict[str, Any]]) -> None:
    """Call `work` and end the module with its result; a result with `failed` is a failure.

    Its `warnings` are displayed and removed from the result.
    """
    # Ansible hides every text of a no_log option wherever it occurs, also `v1` and `default`.
    kubeconfig = module.params.get("kubeconfig")
    module.no_log_values -= all_texts(kubeconfig) - secrets(kubeconfig)
    try:
        result = work()
    except PureLBError as error:
        module.fail_json(msg=str(error))
    for text in result.pop("warnings", ()):
        module.warn(text)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)

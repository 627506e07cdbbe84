# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""How a module ends: the one place where errors become `fail_json`."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible.module_utils.basic import AnsibleModule

from ..core.errors import PureLBError


def finish(module: AnsibleModule, work: Callable[[], Dict[str, Any]]) -> None:
    """Do the work of a module and end it with its result, which may say that it `failed`.

    What it says as `warnings` is for the person who runs the module, not for the result.
    """
    try:
        result = work()
    except PureLBError as error:
        module.fail_json(msg=str(error))
    for text in result.pop("warnings", ()):
        module.warn(text)
    if result.get("failed"):
        module.fail_json(**result)
    module.exit_json(**result)

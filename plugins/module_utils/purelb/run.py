# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Runs the work of a module: the one place where errors become `fail_json`."""

from __future__ import annotations

from typing import Any, Callable, Dict

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.errors import PureLBError
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.kube import (
    IMPORT_ERROR,
    Cluster,
    connect,
)

Work = Callable[[Cluster, Dict[str, Any], bool], Dict[str, Any]]


def run(module: AnsibleModule, work: Work) -> None:
    """Call `work(cluster, params, check_mode)` and end the module with its result."""
    if IMPORT_ERROR is not None:
        module.fail_json(msg=missing_required_lib("kubernetes"), exception=IMPORT_ERROR)
    try:
        result = work(connect(module.params), module.params, module.check_mode)
    except PureLBError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)


def run_offline(module: AnsibleModule, work: Callable[[Dict[str, Any]], Dict[str, Any]]) -> None:
    """Call `work(params)`, which asks no cluster, and end the module with its result."""
    try:
        result = work(module.params)
    except PureLBError as error:
        module.fail_json(msg=str(error))
    module.exit_json(**result)

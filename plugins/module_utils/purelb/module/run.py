# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Runs a module that needs a cluster."""

from __future__ import annotations

import gc
from typing import Any, Callable, Dict

from ansible.module_utils.basic import AnsibleModule, missing_required_lib

from .connection import IMPORT_ERROR, connect
from .finish import finish
from .kube import Cluster

Work = Callable[[Cluster, Dict[str, Any], bool], Dict[str, Any]]


def run(module: AnsibleModule, work: Work) -> None:
    """Call `work(cluster, params, check_mode)` and end the module with its result."""
    if IMPORT_ERROR is not None:
        module.fail_json(msg=missing_required_lib("kubernetes"), exception=IMPORT_ERROR)
    # Everything read is kept until the module ends: with thousands of objects, repeated garbage
    # collection took a tenth of the run time.
    gc.disable()
    finish(module, lambda: work(connect(module.params), module.params, module.check_mode))

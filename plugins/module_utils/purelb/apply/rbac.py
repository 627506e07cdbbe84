# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Applies or removes the permissions of the two programs."""

from __future__ import annotations

from typing import Any, Dict

from ..core.names import MARK
from ..module.kube import Cluster
from .objects import ObjectApplier, result_of
from .permissions import permissions


def manage(cluster: Cluster, params: Dict[str, Any], check_mode: bool) -> Dict[str, Any]:  # noqa: FBT001 - run() calls it so
    """The work of the module purelb_rbac."""
    # They are effective as soon as the API server has stored them.
    options = {**params, "only_labelled": MARK, "wait": False, "wait_timeout": 0}
    applier = ObjectApplier(cluster, options, check_mode=check_mode)
    wanted = permissions(params["namespace"], draining=params["draining"])
    work = applier.apply if params["state"] == "present" else applier.delete
    return result_of(work(wanted))

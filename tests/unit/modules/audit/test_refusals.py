# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the audit says where it cannot audit: one line with the cause and the remedy."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from bench import auditing
from tests.support import ROOT
from tests.support.static_api import StaticApi, serving

pytest.importorskip("kubernetes")
NAMESPACE = "/namespaces/purelb-system"
APPS = f"/apis/apps/v1{NAMESPACE}"
MODULES = pytest.mark.parametrize("module", auditing.MODULES)


def kinds(*plurals: str) -> dict[str, list[Any]]:
    return {"/api/v1": [{"name": plural} for plural in plurals]}


EVERYTHING = kinds(
    "daemonsets", "deployments", "pods", "services", "nodes", "leases", "servicegroups",
    "lbnodeagents",
)  # fmt: skip
WITHOUT_V2 = kinds("daemonsets", "deployments", "pods", "services", "nodes", "leases")
INSTALLED = {
    f"{APPS}/daemonsets": [auditing.program("DaemonSet", "lbnodeagent")],
    f"{APPS}/deployments": [auditing.program("Deployment", "allocator")],
}


def refusal(module: str, api: StaticApi) -> str:
    """Run a module as Ansible does; return its message and assert that it is one line."""
    given = {"ANSIBLE_MODULE_ARGS": {"host": f"http://127.0.0.1:{api.server_port}"}}
    done = subprocess.run(
        [sys.executable, str(ROOT / f"plugins/modules/{module}.py")],
        input=json.dumps(given),
        env={**os.environ, "PYTHONPATH": f"{ROOT}/.ansible/collections"},
        text=True, capture_output=True, check=False, timeout=60,
    )  # fmt: skip
    result = json.loads(done.stdout)
    assert result["failed"]
    assert "exception" not in result
    assert not done.stderr
    message: str = result["msg"]
    assert "\n" not in message
    return message


@MODULES
def test_where_purelb_is_not_installed(module):
    for served in (EVERYTHING, WITHOUT_V2):
        with serving(served) as api:
            assert refusal(module, api) == (
                "PureLB is not installed in namespace purelb-system: it has no DaemonSet "
                "lbnodeagent, no Deployment allocator and no Lease of a node; set namespace to "
                "that of PureLB, or install it with the role purelb_install"
            )


@MODULES
def test_where_only_v1_is_served(module):
    with serving(WITHOUT_V2, INSTALLED) as api:
        message = refusal(module, api)
    assert message.startswith("the API server does not serve servicegroups of purelb.io/v2: ")
    assert "the role purelb_migrate moves a cluster from v1" in message


@MODULES
@pytest.mark.parametrize("kind", ["daemonsets", "pods", "services", "nodes", "servicegroups"])
def test_where_a_list_is_forbidden(module, kind):
    with serving(EVERYTHING, INSTALLED) as api:
        api.forbidden = {kind}
        message = refusal(module, api)
    assert message.startswith(f"not allowed to list {kind}")
    assert '"verbs": ["list"]' in message
    assert "Role" in message

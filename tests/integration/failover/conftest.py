# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures of tests in which addresses move."""

from __future__ import annotations

import pytest


@pytest.fixture
def mark(cluster):
    """Patches the spec of Nodes; restores them after the test."""
    before = {}

    def patch(node, **spec):
        path = f"/api/v1/nodes/{node}"
        now = cluster.api.get(path)["spec"]
        before.setdefault(path, {key: now.get(key) for key in ("taints", "unschedulable")})
        cluster.api.merge_patch(path, {"spec": spec})

    yield patch
    for path, spec in before.items():
        cluster.api.merge_patch(path, {"spec": spec})

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Fixtures that create ServiceGroups and Services for one test."""

from __future__ import annotations

import itertools

import pytest

from tests.support.lab.grants import GROUPS

_names = itertools.count(1)


@pytest.fixture
def make_group(cluster):
    """Creates a ServiceGroup, deleted after the test; returns its name."""
    made = []

    def make(source, *, kind="local", **spec):
        # Groups created in the same second are ordered by name, so names must ascend.
        name = f"g{next(_names):03}"
        body = {
            "apiVersion": "purelb.io/v2",
            "kind": "ServiceGroup",
            "metadata": {"name": name, "namespace": "purelb-system"},
            "spec": {kind: source, **spec},
        }
        made.append(name)
        cluster.api.create(body)
        return name

    yield make
    for name in made:
        cluster.api.delete(f"{GROUPS}/{name}")


@pytest.fixture
def ask(cluster, make_service):
    """Creates a dual-stack Service with a group; returns its path."""

    def make(group, **more):
        annotations = {"purelb.io/service-group": group, **more.pop("annotations", {})}
        return make_service(annotations=annotations, **more)

    return make

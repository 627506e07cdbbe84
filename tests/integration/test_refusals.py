# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the API server itself refuses, and in which words."""

from __future__ import annotations

import pytest

from labkit.api import ApiError

pytestmark = pytest.mark.timeout(60)
V4 = {"pool": "172.28.1.100-172.28.1.110", "subnet": "172.28.1.0/24"}
V6 = {"pool": "fd28:0:0:1::100-fd28:0:0:1::110", "subnet": "fd28:0:0:1::/64"}
OTHER_V4, OTHER_V6 = {**V4, "subnet": "10.0.0.0/8"}, {**V6, "subnet": "fd99::/64"}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"local": {"v4pool": V4}, "remote": {"v4pool": V4}}, "exactly one of"),
        ({}, "exactly one of"),
        ({"local": {"v4pool": OTHER_V4}}, "subnet"),
        ({"local": {"v6pool": OTHER_V6}}, "subnet"),
        ({"local": {"v4pool": V6}}, "IPv4"),
        ({"local": {"v6pool": V4}}, "IPv6"),
        ({"local": {"v4pool": V4, "v4pools": [V4]}}, "v4pools"),
    ],
    ids=["both kinds", "no kind", "v4 outside", "v6 outside", "v6 as v4", "v4 as v6", "both"],
)
def test_a_group_that_cannot_be_is_refused_with_the_reason(cluster, spec, words):
    group = {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": "refused", "namespace": "purelb-system"},
        "spec": spec,
    }
    with pytest.raises(ApiError) as refusal:
        cluster.api.create(group)
    assert refusal.value.status == 422
    assert words in str(refusal.value)
    assert not cluster.api.exists(cluster.api.path_of(group))

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which pools a ServiceGroup may have; all requests but one are dry runs of the admin."""

from __future__ import annotations

import pytest

from tests.support.lab.accounts import objects_applied
from tests.support.lab.dry_runs import (
    GROUPS,
    NAMESPACE,
    Account,
    assert_refused,
    wait_until_enforced,
)

pytestmark = [pytest.mark.timeout(120), pytest.mark.safety]
POLICY = "group-ranges"
WORDS = "a pool must be inside of purelb_install_address_ranges (192.0.2.0/24, 2001:db8::/32, "
V4, V6 = "192.0.2.0/24", "2001:db8::/64"
WIDE = "0.0.0.0/0"


def entry(pool, subnet):
    return {"pool": pool, "subnet": subnet}


def group(spec, name="ranged"):
    return {
        "apiVersion": "purelb.io/v2",
        "kind": "ServiceGroup",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec,
    }


@pytest.fixture(scope="module")
def admin(lab, objects):
    account = Account(lab.api)
    outside = group({"local": {"v4pool": entry("203.0.113.1-203.0.113.9", "203.0.113.0/24")}})
    wait_until_enforced(POLICY, account, "POST", GROUPS, outside)
    return account


@pytest.mark.parametrize(
    "pools",
    [
        {"v4pool": entry("192.0.2.10-192.0.2.20", V4)},
        {"v4pool": entry("192.0.2.10 - 192.0.2.20", V4), "v6pool": entry("2001:DB8::/120", V6)},
        {"v4pools": [entry("192.0.2.16/28", V4), entry("198.51.100.200/30", "198.51.100.0/24")]},
        {"v6pools": [entry("2001:db8::1-2001:db8::ffff", V6)]},
    ],
    ids=["range", "both families", "networks", "lists"],
)
@pytest.mark.parametrize("kind", ["local", "remote"])
def test_a_pool_inside_passes(admin, kind, pools):
    admin.send("POST", GROUPS, group({kind: pools}))


@pytest.mark.parametrize(
    ("pools", "named"),
    [
        ({"v4pool": entry("192.0.3.1-192.0.3.9", "192.0.3.0/24")}, "192.0.3.1-192.0.3.9"),
        ({"v6pool": entry("2001:db9::/120", "2001:db9::/64")}, "2001:db9::/120"),
        ({"v4pools": [entry("192.0.2.1/32", V4), entry("192.0.0.0/16", WIDE)]}, "192.0.0.0/16"),
        # From one of the networks into another, over what is in none.
        (
            {"v4pool": entry("198.51.100.1-198.51.100.200", "198.51.100.0/24")},
            "198.51.100.1-198.51.100.200",
        ),
    ],
    ids=["range", "network", "one of several", "over a gap"],
)
@pytest.mark.parametrize("kind", ["local", "remote"])
def test_a_pool_outside_is_refused_and_named(admin, kind, pools, named):
    body = group({kind: pools})
    words = WORDS + "198.51.100.0/25, 198.51.100.192/26): " + named
    assert_refused(words, POLICY, admin, "POST", GROUPS, body)


def test_groups_of_other_ipams_have_no_pools_to_check(admin):
    admin.send("POST", GROUPS, group({"external": {"provider": "acme", "announce": "local"}}))


def test_a_group_that_is_outside_may_be_labelled_and_its_status_written(lab, admin, allocator):
    with objects_applied(lab, [group({"remote": {"v4pool": entry("192.0.2.0/28", V4)}})]):
        path = f"{GROUPS}/ranged"
        admin.patch(path, {"metadata": {"labels": {"a": "b"}}})
        allocator.patch(f"{path}/status", {"status": {"allocatedIPv4": 1}})
        outside = {"spec": {"remote": {"v4pool": entry("203.0.113.0/28", "203.0.113.0/24")}}}
        assert_refused(WORDS, POLICY, admin, "PATCH", path, outside)

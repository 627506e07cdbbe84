# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Tables of decoded objects: what they keep, and which changes they report."""

from __future__ import annotations

import pytest

from purelb.core.model import ServiceKey
from purelb_agent.kube.tables import (
    config_table,
    group_table,
    node_table,
    service_table,
    slice_table,
)
from tests.support.agent.kubernetes_objects import (
    config_object,
    group_object,
    node_object,
    service_object,
    slice_object,
)

WEB = ServiceKey("default", "web")


class Changes(list):
    """Keeps the keys of each change."""

    def __call__(self, keys):
        self.append(keys)


@pytest.fixture
def changes():
    return Changes()


@pytest.fixture
def services(changes):
    table = service_table(changes)
    table.replace([service_object()], asked_at=0.0)
    changes.clear()
    return table


class TestTable:
    def test_a_list_reports_what_it_changes_adds_and_removes(self, services, changes):
        services.put(service_object("old"))
        services.put(service_object("same"))
        changes.clear()
        listed = [service_object(version="2"), service_object("new"), service_object("same")]
        services.replace(listed, asked_at=1.0)
        assert changes == [{WEB, ServiceKey("default", "new"), ServiceKey("default", "old")}]
        assert ServiceKey("default", "old") not in services.records

    def test_a_list_without_changes_is_reported_as_empty(self, services, changes):
        services.replace([service_object()], asked_at=1.0)
        assert changes == [set()]

    def test_a_table_is_listed_after_its_first_list(self, changes):
        table = service_table(changes)
        table.put(service_object())
        assert not table.listed
        table.replace([], asked_at=0.0)
        assert table.listed

    def test_a_changed_object_is_reported(self, services, changes):
        services.put(service_object(version="2"))
        assert changes == [{WEB}]
        assert services.records[WEB].version == "2"

    def test_an_object_without_changes_is_not_reported(self, services, changes):
        services.put(service_object())
        assert changes == []

    def test_a_deleted_object_is_reported_once(self, services, changes):
        for _event in range(2):
            services.drop(service_object())
        assert changes == [{WEB}]
        assert services.records == {}

    def test_an_object_that_is_no_longer_wanted_is_removed(self, services, changes):
        plain = service_object(type="ClusterIP")
        plain["metadata"]["annotations"] = {}
        services.put(plain)
        assert changes == [{WEB}]
        assert services.records == {}

    def test_an_invalid_object_is_logged_left_out_and_passed_on(self, changes, caplog):
        errors = []
        table = group_table(changes, on_error=lambda item, error: errors.append((item, error)))
        bad = {"metadata": {"name": "bad", "namespace": "ns"}, "spec": {}}
        table.replace([bad, group_object()], asked_at=0.0)
        assert list(table.records) == ["default"]
        assert [(item, error.where) for item, error in errors] == [(bad, "ServiceGroup ns/bad")]
        assert caplog.messages == ["objectRefused"]

    def test_an_object_that_becomes_invalid_is_removed(self, changes):
        table = group_table(changes)
        table.put(group_object())
        table.put({"metadata": {"name": "default"}, "spec": {}})
        assert table.records == {}
        assert changes == [{"default"}] * 2


class TestServices:
    def test_a_service_that_still_has_our_annotations_is_kept(self, services):
        services.put(service_object(type="ClusterIP"))
        assert not services.records[WEB].is_load_balancer

    def test_unwanted_services_are_left_out(self, changes):
        table = service_table(changes, wanted=lambda service: service.key.name != "web")
        table.replace([service_object(), service_object("shop")], asked_at=0.0)
        assert [key.name for key in table.records] == ["shop"]


@pytest.mark.parametrize(
    ("make", "item", "key"),
    [
        (group_table, group_object(), "default"),
        (config_table, config_object(), "default"),
        (node_table, node_object("n1"), "n1"),
        (slice_table, slice_object("web-abc", "n1"), ServiceKey("default", "web-abc")),
        (service_table, service_object(), WEB),
    ],
    ids=["groups", "configs", "nodes", "slices", "services"],
)
def test_each_table_has_its_key(changes, make, item, key):
    table = make(changes)
    table.put(item)
    assert list(table.records) == [key]
    assert changes == [{key}]

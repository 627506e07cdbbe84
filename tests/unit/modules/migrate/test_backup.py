# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import json
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from purelb.migrate import backup
from purelb.module.errors import ClusterError

ALLOCATED = {"purelb.io/allocated-by": "PureLB", "purelb.io/allocated-from": "default"}


def service(name: str = "web", *addresses: str) -> dict[str, Any]:
    meta = {"namespace": "default", "name": name, "resourceVersion": "7", "annotations": ALLOCATED}
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": meta,
        "spec": {"type": "LoadBalancer", "externalTrafficPolicy": "Local"},
        "status": {"loadBalancer": {"ingress": [{"ip": address} for address in addresses]}},
    }


def group(pool: str = "10.0.0.0/28") -> dict[str, Any]:
    meta = {"namespace": "purelb", "name": "default", "uid": "u"}
    return {"apiVersion": "purelb.io/v1", "kind": "ServiceGroup", "metadata": meta, "spec": pool}


def annotated(obj: dict[str, Any], **annotations: str | None) -> dict[str, Any]:
    other = deepcopy(obj)
    kept = {**other["metadata"]["annotations"], **annotations}
    other["metadata"]["annotations"] = {k: text for k, text in kept.items() if text is not None}
    return other


WEB = service("web", "10.0.0.1", "fd00::1")
POOL_TYPE = {"purelb.io/pool-type": "local"}
BACKUP = backup.take([group(), WEB], [{"kind": "ServiceGroup"}])


def test_a_backup_is_sorted_and_contains_only_services_of_purelb():
    foreign = annotated(service("foreign", "10.9.0.1"), **{"purelb.io/allocated-by": None})
    taken = backup.take([WEB, foreign, group()], ())
    assert [obj["kind"] for obj in taken.before] == ["Service", "ServiceGroup"]
    assert list(taken.services) == [("Service", "default", "web")]
    assert taken.of_kind("ServiceGroup")[0]["metadata"] == {
        "namespace": "purelb",
        "name": "default",
    }


class TestFile:
    def test_a_written_backup_is_read_back_unchanged(self, tmp_path: Path):
        path = tmp_path / "new" / "backup.json"
        checksum = backup.write(BACKUP, str(path))
        assert backup.read(str(path), checksum) == BACKUP
        assert path.stat().st_mode & 0o777 == 0o600
        assert path.parent.stat().st_mode & 0o777 == 0o700
        assert list(path.parent.iterdir()) == [path]

    def test_a_file_with_another_checksum_is_refused(self, tmp_path: Path):
        path = tmp_path / "backup.json"
        checksum = backup.write(BACKUP, str(path))
        backup.write(backup.take([WEB], ()), str(path))
        with pytest.raises(ClusterError, match=r"is not the backup of this migration.*first run"):
            backup.read(str(path), checksum)

    @pytest.mark.parametrize("content", [None, b"\xff\xfe"], ids=["missing", "garbled"])
    def test_an_unreadable_file_is_an_error(self, tmp_path: Path, content: bytes | None):
        path = tmp_path / "backup.json"
        if content is not None:
            path.write_bytes(content)
        with pytest.raises(ClusterError, match=r"cannot be read.*first run"):
            backup.read(str(path), "")

    def test_a_failed_write_is_an_error_and_leaves_no_file(self, tmp_path: Path):
        path = tmp_path / "backup.json"
        path.mkdir()
        with pytest.raises(ClusterError, match="cannot be written: Is a directory"):
            backup.write(BACKUP, str(path))
        assert list(tmp_path.iterdir()) == [path]

    def test_the_file_is_json(self, tmp_path: Path):
        path = tmp_path / "backup.json"
        backup.write(BACKUP, str(path))
        assert json.loads(path.read_text()).keys() == {"before", "becomes"}


def test_fields_of_others_make_no_difference():
    again = annotated(WEB, **{"purelb.io/announcing-IPv4": "n1,eth0", "example.com/a": "c"})
    again["metadata"]["resourceVersion"] = "8"
    renamed = {**group(), "metadata": {**group()["metadata"], "uid": "v"}}
    assert backup.differences([again, renamed], BACKUP) == []


@pytest.mark.parametrize(
    ("now", "named"),
    [
        ([group("10.0.0.0/29"), WEB], ["ServiceGroup purelb/default"]),
        ([group(), annotated(WEB, **POOL_TYPE)], ["Service default/web"]),
        ([group(), service("web", "10.0.0.1")], ["Service default/web"]),
        ([group(), service("web", "10.0.0.1", "fd00::2")], ["Service default/web"]),
        ([group(), {**WEB, "spec": {"externalTrafficPolicy": "Cluster"}}], ["Service default/web"]),
        ([group(), {**WEB, "spec": {**WEB["spec"], "loadBalancerClass": "a"}}],
         ["Service default/web"]),
        ([group()], ["Service default/web"]),
        ([group(), WEB, service("new", "10.0.0.2")], ["Service default/new"]),
    ],
    ids=["pool", "annotation", "address less", "address", "policy", "class", "gone", "new"],
)  # fmt: skip
def test_a_changed_missing_or_new_object_is_named(now: Any, named: list[str]):
    assert backup.differences(now, BACKUP) == named


@pytest.mark.parametrize(
    ("now", "names"),
    [
        ([WEB], []),
        ([], []),
        ([service("web", "fd00::1", "10.0.0.1"), service("new", "10.0.0.9")], []),
        ([service("web", "10.0.0.1")], ["Service default/web"]),
        ([service("web", "10.0.0.1", "fd00::9")], ["Service default/web"]),
    ],
    ids=["the same", "gone", "another order", "one less", "another"],
)
def test_services_with_changed_addresses_are_named(now: Any, names: list[str]):
    assert backup.changed_addresses(now, BACKUP) == names

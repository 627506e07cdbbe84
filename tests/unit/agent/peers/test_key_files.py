# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The keys in a folder as the kubelet mounts it, while they change."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

from purelb.core.errors import SettingError
from purelb.core.holding.peer_keys import PeerKeys
from purelb_agent.peers.key_files import PeerKeyFiles

OLD, NEW = b"old sixteen bytes", b"new sixteen bytes"


class Mount:
    """A Secret as the kubelet mounts it: links through ..data, replaced in one step."""

    def __init__(self, folder):
        self.folder, self._versions = folder, 0
        folder.mkdir()

    def show(self, **data):
        before = list(self.folder.glob("..version-*"))
        self._versions += 1
        version = self.folder / f"..version-{self._versions}"
        version.mkdir()
        for name, value in data.items():
            (version / name).write_bytes(value)
        (self.folder / "..new").symlink_to(version.name)
        (self.folder / "..new").rename(self.folder / "..data")
        for name in data:
            if not (self.folder / name).is_symlink():
                (self.folder / name).symlink_to(f"..data/{name}")
        for old in before:
            shutil.rmtree(old)


@pytest.fixture
def mount(tmp_path):
    return Mount(tmp_path / "peers")


@pytest.fixture
def files(mount, caplog):
    caplog.set_level(logging.INFO)
    mount.show(key=OLD)
    return PeerKeyFiles.open(mount.folder)


class TestStart:
    def test_a_key_is_read_unchanged(self, mount):
        mount.show(key=b"\n" + OLD + b"\n")
        assert PeerKeyFiles.open(mount.folder).current() == PeerKeys(b"\n" + OLD + b"\n")

    def test_without_a_folder_there_are_no_keys(self, tmp_path):
        assert PeerKeyFiles.open(tmp_path / "peers") is None

    @pytest.mark.parametrize("data", [{}, {"key": b""}], ids=["no file", "empty"])
    def test_without_a_key_there_are_no_keys(self, mount, data):
        mount.show(**data)
        assert PeerKeyFiles.open(mount.folder) is None

    def test_a_key_that_is_too_short_is_an_error_with_the_remedy(self, mount):
        mount.show(key=b"x" * 15)
        with pytest.raises(SettingError, match=r"15 bytes.*Secret purelb-peers 16 random bytes"):
            PeerKeyFiles.open(mount.folder)

    def test_a_key_that_cannot_be_read_is_an_error_with_the_remedy(self, tmp_path):
        (tmp_path / "key").mkdir()
        with pytest.raises(SettingError, match=r"Is a directory.*mount the Secret purelb-peers"):
            PeerKeyFiles.open(tmp_path)


class TestRotation:
    def test_each_change_is_seen_at_the_next_use_and_logged_once(self, mount, files, caplog):
        for data, expected in [
            ({"key": OLD}, PeerKeys(OLD)),
            ({"key": OLD, "next": NEW}, PeerKeys(OLD, (NEW,))),
            ({"key": NEW, "previous": OLD}, PeerKeys(NEW, (OLD,))),
            ({"key": NEW}, PeerKeys(NEW)),
        ]:
            mount.show(**data)
            assert [files.current(), files.current()] == [expected, expected]
        assert caplog.messages == ["peerKeysRead"] * 3
        assert "sixteen" not in str([record.fields for record in caplog.records])

    def test_files_that_did_not_change_are_not_read_again(self, files, monkeypatch):
        monkeypatch.setattr(Path, "read_bytes", pytest.fail)
        assert files.current() == PeerKeys(OLD)

    def test_files_of_two_versions_are_not_mixed(self, mount, files, monkeypatch):
        mount.show(key=OLD, next=NEW)
        read_bytes, shown = Path.read_bytes, []

        def replaced_meanwhile(path):
            if not shown:
                shown.append(path)
                content = read_bytes(path)
                mount.show(key=NEW, previous=OLD)
                return content
            return read_bytes(path)

        monkeypatch.setattr(Path, "read_bytes", replaced_meanwhile)
        assert files.current() == PeerKeys(NEW, (OLD,))

    def test_a_version_that_goes_while_it_is_read_is_left(self, mount, files, monkeypatch):
        mount.show(key=OLD, next=NEW)
        read_bytes, shown = Path.read_bytes, []

        def replaced_before(path):
            if not shown:
                shown.append(path)
                mount.show(key=NEW)
            return read_bytes(path)

        monkeypatch.setattr(Path, "read_bytes", replaced_before)
        assert files.current() == PeerKeys(NEW)


class TestKeysThatCannotBeUsed:
    @pytest.mark.parametrize(
        ("data", "reason"),
        [
            ({"key": b"short"}, "has 5 bytes"),
            ({"key": NEW, "next": b"?"}, "'next' has 1 bytes"),
            ({"key": b""}, "no 'key' any more"),
            ({}, "no 'key' any more"),
        ],
        ids=["short", "short next", "empty", "gone"],
    )
    def test_the_last_good_ones_stay_in_use_and_it_is_logged_once(
        self, mount, files, caplog, data, reason
    ):
        mount.show(**data)
        assert [files.current() for _use in range(3)] == [PeerKeys(OLD)] * 3
        (record,) = caplog.records
        assert record.message == "peerKeysKept"
        assert reason in record.fields["error"]
        assert "purelb-peers" in record.fields["error"]

    def test_so_they_do_if_the_files_cannot_be_read(self, mount, files, caplog):
        shutil.rmtree(mount.folder / "..version-1")
        (mount.folder / "..version-1" / "key").mkdir(parents=True)
        assert files.current() == PeerKeys(OLD)
        assert caplog.messages == ["peerKeysKept"]

    def test_good_ones_are_used_again_and_logged(self, mount, files, caplog):
        for data in ({"key": b"short"}, {"key": OLD}, {"key": b"short"}):
            mount.show(**data)
            assert files.current() == PeerKeys(OLD)
        assert caplog.messages == ["peerKeysKept", "peerKeysRead", "peerKeysKept"]

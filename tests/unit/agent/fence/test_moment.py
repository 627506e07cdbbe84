# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The file for the next agent in the same Pod."""

from __future__ import annotations

from purelb_agent.fence.moment import MOMENT, shared_moment


def test_it_outlives_the_process(tmp_path):
    first = shared_moment(tmp_path)
    assert bytes(first) == bytes(8)
    first[:] = b"12345678"
    first.release()
    assert bytes(shared_moment(tmp_path)) == b"12345678"
    assert (tmp_path / MOMENT).stat().st_mode & 0o777 == 0o600


def test_of_another_length_it_is_mended(tmp_path):
    (tmp_path / MOMENT).write_bytes(b"12")
    assert bytes(shared_moment(tmp_path)) == b"12\0\0\0\0\0\0"


def test_without_a_folder_it_ends_with_the_process(tmp_path, caplog):
    moment = shared_moment(tmp_path / "none")
    moment[:] = b"12345678"
    assert bytes(shared_moment(tmp_path / "none")) == bytes(8)
    assert "fenceMomentNotKept" in caplog.messages

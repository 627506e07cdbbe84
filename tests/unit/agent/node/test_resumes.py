# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The timer of the real kernel; a sleep of the machine is replaced by its end."""

from __future__ import annotations

import errno
import select

import pytest

from purelb_agent.node import resumes
from purelb_agent.node.resumes import Resumes


def is_readable(made):
    return bool(select.select([made], [], [], 0)[0])


@pytest.fixture
def made():
    opened = Resumes()
    yield opened
    opened.close()


def test_nothing_is_told_without_a_resume(made):
    assert not is_readable(made)
    made.read()
    assert not is_readable(made)


def test_it_is_told_once(monkeypatch):
    monkeypatch.setattr(resumes, "_NEVER", 1)
    opened = Resumes()
    assert is_readable(opened)
    opened.read()
    assert not is_readable(opened)
    opened.close()


def test_a_timer_that_the_kernel_refuses_is_raised(monkeypatch):
    monkeypatch.setattr(resumes, "_NEVER", -1)
    with pytest.raises(OSError, match="Invalid argument") as raised:
        Resumes()
    assert raised.value.errno == errno.EINVAL

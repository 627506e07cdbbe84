# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Work distributed over processes."""

from __future__ import annotations

import os
from functools import partial
from operator import add

import pytest

from purelb.audit.parallel import parallel_map


@pytest.mark.parametrize("count", [0, 1, 2, 101])
def test_results_are_in_the_order_of_the_items(count):
    assert parallel_map(partial(add, 1), range(count)) == list(range(1, count + 1))


def test_work_is_done_by_other_processes_that_end():
    pids = set(parallel_map(_pid, range(100)))
    assert os.getpid() not in pids
    assert not any(map(_exists, pids))


def test_an_exception_in_a_worker_is_raised_here():
    with pytest.raises(ZeroDivisionError):
        parallel_map(partial(divmod, 1), range(3))


def _pid(_number):
    return os.getpid()


def _exists(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True

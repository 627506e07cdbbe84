# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Distributes pure, processor-bound work over forked processes.

For large amounts, such as one digest for each node and address. Needs nothing that Ansible does
not need: it forks, too.
"""

from __future__ import annotations

from multiprocessing import cpu_count, get_context
from typing import Callable, List, Sequence, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


def parallel_map(function: Callable[[Item], Result], items: Sequence[Item]) -> List[Result]:
    """Returns what `map` returns. Function, items and results are pickled, in one chunk each."""
    count = cpu_count()
    with get_context("fork").Pool(count) as pool:
        return pool.map(function, items, chunksize=-(-len(items) // count))

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Spreads pure work over the processors: each copy of this process does a part of it.

For work that is much and takes nothing but a processor, as a digest for each node and address is.
It asks no more of the machine than Ansible itself, which forks, too.
"""

from __future__ import annotations

from multiprocessing import cpu_count, get_context
from typing import Callable, List, Sequence, TypeVar

One = TypeVar("One")
Result = TypeVar("Result")


def parallel_map(function: Callable[[One], Result], items: Sequence[One]) -> List[Result]:
    """What `map` gives. Function, items and results travel between processes, each part whole."""
    count = cpu_count()
    with get_context("fork").Pool(count) as pool:
        return pool.map(function, items, chunksize=-(-len(items) // count))

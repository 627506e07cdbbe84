# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Waits for the effects of a migration's writes; in check mode there are none to wait for."""

from __future__ import annotations

import time
from typing import Callable, List, Optional, TypeVar

from ..module.errors import ApiError, ClusterError
from ..module.kube import Object
from ..module.manifests import reference
from ..module.polling import poll
from .reader import MigrationReader

T = TypeVar("T")
# Seconds. A Service without addresses waits for us, so this is shorter than for other objects.
_INTERVAL = 0.1


class MigrationWaiter:
    """Waits up to `timeout` seconds for each thing."""

    def __init__(self, reader: MigrationReader, *, check_mode: bool, timeout: int) -> None:
        self._reader = reader
        self._check_mode = check_mode
        self._timeout = timeout

    def sleep(self, seconds: float) -> None:
        """Sleep, except in check mode."""
        if not self._check_mode:
            time.sleep(seconds)

    def until(self, obj: Object, is_done: Callable[[Object], bool], condition: str) -> Object:
        """Wait until an object meets a condition or is deleted; returns its last known state.

        `condition` completes the error text "waited 180 s until ...".
        """
        if self._check_mode or is_done(obj):
            return obj
        found = poll(
            lambda: self._reader.get(obj),
            lambda now: now is None or is_done(now),
            timeout=self._timeout,
            interval=_INTERVAL,
        )
        if found is None:
            return obj
        if not is_done(found):
            raise ClusterError(f"{reference(obj)}: waited {self._timeout} s until {condition}")
        return found

    def until_none(self, look: Callable[[], List[str]], problem: str) -> None:
        """Wait until `look` returns no more items; the error names the problem and the items."""
        if self._check_mode:
            return
        items = poll(look, lambda found: not found, timeout=self._timeout, interval=_INTERVAL)
        if items:
            raise ClusterError(f"after {self._timeout} s {problem}: {'; '.join(items)}")

    def retry(self, work: Callable[[], T]) -> T:
        """Return the result of `work`; retry on errors of the API server.

        It takes the API server a moment to serve a definition that has changed.
        """
        results: List[T] = []

        def attempt() -> Optional[ApiError]:
            try:
                results.append(work())
            except ApiError as error:
                return error
            return None

        error = poll(attempt, lambda found: found is None, timeout=self._timeout)
        if error is not None:
            raise error
        return results[0]

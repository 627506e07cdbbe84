# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Resolves a path as the user means it who types it at the command line."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Callable, Dict


def caller_path(path: Any) -> Any:
    """Returns a relative path as one in the folder in which ansible-playbook was called.

    Modules run in the playbook's folder, which is inside the collection for its own playbooks.
    Each part of a list separated by colons is resolved. What is empty, starts with `/` or `~`, or
    is no text is returned as it is.
    """
    if not isinstance(path, str):
        return path
    return os.pathsep.join(_resolved(part) for part in path.split(os.pathsep))


def _resolved(path: str) -> str:
    if not path or path.startswith(("/", "~")):
        return path
    # As the user wrote it, without looking where links lead.
    return os.path.normpath(Path.cwd() / path)


class FilterModule:
    """The filter plugin."""

    def filters(self) -> Dict[str, Callable[[Any], Any]]:
        """Returns the filters by name."""
        return {"caller_path": caller_path}

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Make the collection importable by its full name in pytest, wherever the checkout is.

The agent and the tests import the shared code as `purelb`, the modules import it by its long name.
Here both names lead to the same module object, so no class exists twice.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

_ROOT = Path(__file__).resolve().parent
_COLLECTION = "ansible_collections.purelb.purelb"
_SHARED = f"{_COLLECTION}.plugins.module_utils.purelb"
# The collection and the packages above it, which need not exist on disk.
_PACKAGES: dict[str, list[str]] = {
    "ansible_collections": [],
    "ansible_collections.purelb": [],
    _COLLECTION: [str(_ROOT)],
}


class _Alias(Loader):
    """Loads the module `short` under another name."""

    def __init__(self, short: str) -> None:
        self._module = importlib.import_module(short)
        self._spec = self._module.__spec__

    def create_module(self, _spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has put the alias's own specification here.
        module.__spec__ = self._spec


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, _path: Sequence[str] | None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _PACKAGES:
            spec = ModuleSpec(fullname, None, is_package=True)
            spec.submodule_search_locations = _PACKAGES[fullname]
            return spec
        if fullname == _SHARED or fullname.startswith(f"{_SHARED}."):
            return ModuleSpec(fullname, _Alias(f"purelb{fullname.removeprefix(_SHARED)}"))
        return None


sys.meta_path.insert(0, _Finder())

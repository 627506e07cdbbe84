# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Give plain pytest the collection under its full name, wherever the checkout lies."""

from __future__ import annotations

import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parent
# In the checkout, so that nothing is left behind when a run is killed.
_TREE = _ROOT / ".cache/tree"
_LINK = _TREE / "ansible_collections/purelb/purelb"
_LINK.parent.mkdir(parents=True, exist_ok=True)
if not _LINK.is_symlink():
    _LINK.symlink_to(_ROOT)
sys.path.insert(0, str(_TREE))

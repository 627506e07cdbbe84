# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""A text that changes with anything that counts in a backup."""

from __future__ import annotations

from typing import Callable, Dict, Iterable

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.backup import digest_of
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.manifests import Object


def migration_digest(objects: Iterable[Object]) -> str:
    """A text that changes with anything that counts in a backup."""
    return digest_of(objects)


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> Dict[str, Callable[..., str]]:
        """Filters by name."""
        return {"migration_digest": migration_digest}

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What a migration keeps of objects, to restore them from."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.backup import backup_of
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.manifests import Object


def migration_backup(objects: Iterable[Object]) -> List[Object]:
    """What a migration keeps of objects, to restore them from."""
    return backup_of(objects)


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> Dict[str, Callable[..., List[Object]]]:
        """Filters by name."""
        return {"migration_backup": migration_backup}

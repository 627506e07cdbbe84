# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What of Services has to change to be as before."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.backup import service_patches
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.manifests import Object


def migration_service_patches(objects: Iterable[Object], before: Iterable[Object]) -> List[Object]:
    """What of Services has to change to be as before."""
    return service_patches(objects, before)


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> Dict[str, Callable[..., List[Object]]]:
        """Filters by name."""
        return {"migration_service_patches": migration_service_patches}

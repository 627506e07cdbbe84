# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Services that have other addresses than before."""

from __future__ import annotations

from typing import Callable, Dict, Iterable, List

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.backup import changed_addresses
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.manifests import Object


def migration_changed_addresses(objects: Iterable[Object], before: Iterable[Object]) -> List[str]:
    """Services that have other addresses than before."""
    return changed_addresses(objects, before)


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> Dict[str, Callable[..., List[str]]]:
        """Filters by name."""
        return {"migration_changed_addresses": migration_changed_addresses}

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Returns the permissions that the module purelb_rbac applies, as objects."""

from __future__ import annotations

from typing import Any, Callable, Dict, List

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.apply import permissions


def permission_objects(namespace: str, draining: bool = True) -> List[Dict[str, Any]]:  # noqa: FBT001, FBT002 - an option in a template
    """Returns the objects of an installation in a namespace."""
    return permissions.permissions(namespace, draining=draining)


class FilterModule:
    """The filter plugin."""

    def filters(self) -> Dict[str, Callable[..., List[Dict[str, Any]]]]:
        """Returns the filters by name."""
        return {"permissions": permission_objects}

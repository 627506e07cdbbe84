# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Lays out the result of purelb_lease_info for a page."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Callable, Dict, Iterable, Mapping

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.audit.page import page_of


def audit_page(seen: Mapping[str, Any], groups: Iterable[Mapping[str, Any]] = ()) -> Dict[str, Any]:
    """The page as plain lists and dictionaries."""
    # By way of JSON: templates get no tuples and no words that are enums.
    page: Dict[str, Any] = json.loads(json.dumps(asdict(page_of(seen, groups))))
    return page


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> Dict[str, Callable[..., Dict[str, Any]]]:
        """Filters by name."""
        return {"audit_page": audit_page}

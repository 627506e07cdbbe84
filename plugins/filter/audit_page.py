# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Prepares the result of purelb_lease_info for an HTML page."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any, Callable, Dict, Iterable, Mapping

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.audit.page import page_of


def audit_page(seen: Mapping[str, Any], groups: Iterable[Mapping[str, Any]] = ()) -> Dict[str, Any]:
    """Returns the page as plain lists and dictionaries."""
    # Through JSON, so that templates get lists and strings instead of tuples and enums.
    page: Dict[str, Any] = json.loads(json.dumps(asdict(page_of(seen, groups))))
    return page


class FilterModule:
    """The filter plugin."""

    def filters(self) -> Dict[str, Callable[..., Dict[str, Any]]]:
        """Returns the filters by name."""
        return {"audit_page": audit_page}

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Asks the programs' own parser whether they would start with given timings."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.errors import SettingError
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.settings import LeaseTiming


def lease_timing_problem(environment: Mapping[str, Any]) -> str:
    """The rule that the timings break, or an empty text."""
    try:
        LeaseTiming.parse({name: str(value) for name, value in environment.items()})
    except SettingError as error:
        return str(error)
    return ""


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> Dict[str, Callable[[Mapping[str, Any]], str]]:
        """Filters by name."""
        return {"lease_timing_problem": lease_timing_problem}

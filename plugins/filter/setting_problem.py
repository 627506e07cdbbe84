# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Validates settings of the programs with their own parsers."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping

from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.errors import SettingError
from ansible_collections.purelb.purelb.plugins.module_utils.purelb.core.settings import (
    EvictionLimit,
    TimingChoice,
)


def setting_problem(environment: Mapping[str, Any]) -> str:
    """Returns an empty string if valid, otherwise the violated rule."""
    settings = {name: str(value) for name, value in environment.items()}
    try:
        TimingChoice.parse(settings)
        EvictionLimit.parse(settings)
    except SettingError as error:
        return str(error)
    return ""


class FilterModule:
    """The filter plugin."""

    def filters(self) -> Dict[str, Callable[[Mapping[str, Any]], str]]:
        """Returns the filters by name."""
        return {"setting_problem": setting_problem}

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Options of modules and the fields of objects that they stand for, by one rule both ways.

An option has the name of its field in snake_case. What is no option of its own (labels) is
handed on as it is.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping

# Where the rule would spell a field otherwise.
IRREGULAR = {"skip_ipv6_dad": "skipIPv6DAD"}
_OPTIONS = {field: option for option, field in IRREGULAR.items()}


def field_name(option: str) -> str:
    """The field that an option stands for."""
    first, *rest = option.split("_")
    return IRREGULAR.get(option) or first + "".join(part.capitalize() for part in rest)


def option_name(field: str) -> str:
    """The option that stands for a field."""
    return _OPTIONS.get(field) or re.sub(r"[A-Z]", lambda m: f"_{m[0].lower()}", field)


def option_path(field: str) -> str:
    """The option for a path such as `spec.local.v4pools[1]`, as a task spells it."""
    return ".".join(option_name(part) for part in field.split(".") if part != "spec")


def fields_of(given: Mapping[str, Any], options: Mapping[str, Any]) -> Dict[str, Any]:
    """What was given, as fields; what was left out is left out."""
    return {
        field_name(name): _value(given[name], option)
        for name, option in options.items()
        if given.get(name) is not None
    }


def _value(value: Any, option: Mapping[str, Any]) -> Any:
    inner = option.get("options")
    if inner is None:
        return value
    if option["type"] == "list":
        return [fields_of(one, inner) for one in value]
    return fields_of(value, inner)

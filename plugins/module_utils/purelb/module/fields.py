# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""Maps module options to the fields of objects and back.

An option is the name of its field in snake_case. Values without sub-options (such as labels) are
passed on unchanged.
"""

from __future__ import annotations

import re
from typing import Any, Dict, Mapping

# Exceptions to the rule.
IRREGULAR = {"skip_ipv6_dad": "skipIPv6DAD", "allow_http": "allowHTTP"}
_OPTIONS = {field: option for option, field in IRREGULAR.items()}


def field_name(option: str) -> str:
    """Returns the field of an option."""
    first, *rest = option.split("_")
    return IRREGULAR.get(option) or first + "".join(part.capitalize() for part in rest)


def option_name(field: str) -> str:
    """Returns the option of a field."""
    return _OPTIONS.get(field) or re.sub(r"[A-Z]", lambda m: f"_{m[0].lower()}", field)


def option_path(field: str) -> str:
    """Returns the option for a field path: `spec.local.v4pools[1]` gives `local.v4pools[1]`."""
    return ".".join(option_name(part) for part in field.split(".") if part != "spec")


def fields_of(given: Mapping[str, Any], options: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the options that are set (not None) as fields."""
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
        return [fields_of(item, inner) for item in value]
    return fields_of(value, inner)

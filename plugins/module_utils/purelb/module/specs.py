# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

"""The specs of ServiceGroup and LBNodeAgent as module options, field by field.

No option has a default: an omitted one gets the default of the CustomResourceDefinition, and is
removed if it was set before. A test compares the options with the definitions.
"""

from __future__ import annotations

from typing import Any, Dict

from .argspec import ArgumentSpec

Options = Dict[str, Any]

TEXT: Options = {"type": "str"}
NUMBER: Options = {"type": "int"}
SWITCH: Options = {"type": "bool"}
TEXTS: Options = {"type": "list", "elements": "str"}
REQUIRED_TEXT: Options = {"type": "str", "required": True}

SOURCES = ("local", "remote", "netbox", "external")

_RANGE: Options = {"pool": REQUIRED_TEXT, "subnet": REQUIRED_TEXT, "aggregation": TEXT}
_ONE_RANGE: Options = {"type": "dict", "options": _RANGE}
_RANGES: Options = {"type": "list", "elements": "dict", "options": _RANGE}
_POOLS: Options = {
    "type": "dict",
    "options": {
        "v4pool": _ONE_RANGE,
        "v4pools": _RANGES,
        "v6pool": _ONE_RANGE,
        "v6pools": _RANGES,
        "skip_ipv6_dad": SWITCH,
        "multi_pool": SWITCH,
        "balance_pools": SWITCH,
    },
    "mutually_exclusive": [["v4pool", "v4pools"], ["v6pool", "v6pools"]],
    "required_one_of": [["v4pool", "v4pools", "v6pool", "v6pools"]],
}


def service_group() -> ArgumentSpec:
    """Returns the options for the spec of a ServiceGroup."""
    return ArgumentSpec(
        {
            "local": _POOLS,
            "remote": _POOLS,
            "netbox": {
                "type": "dict",
                "options": {
                    "url": REQUIRED_TEXT,
                    "tenant": REQUIRED_TEXT,
                    "aggregation": TEXT,
                    "allow_http": SWITCH,
                },
            },
            "external": {
                "type": "dict",
                "options": {
                    "provider": REQUIRED_TEXT,
                    "socket": TEXT,
                    "announce": {"type": "str", "choices": ["local", "remote"], "required": True},
                },
            },
            "namespaces": TEXTS,
            "enforce_namespaces": SWITCH,
            "namespace_default": SWITCH,
            "sharing": {"type": "str", "choices": ["namespace", "cluster"]},
        },
        mutually_exclusive=(SOURCES,),
        required_if=(("state", "present", SOURCES, True),),
    )


_SELECTOR: Options = {
    "type": "dict",
    "options": {
        "match_labels": {"type": "dict"},
        "match_expressions": {
            "type": "list",
            "elements": "dict",
            "options": {
                "key": {"type": "str", "required": True, "no_log": False},
                "operator": {
                    "type": "str",
                    "choices": ["In", "NotIn", "Exists", "DoesNotExist"],
                    "required": True,
                },
                "values": TEXTS,
            },
        },
    },
}
_GARP: Options = {
    "type": "dict",
    "options": {
        "enabled": SWITCH,
        "count": NUMBER,
        "interval_ms": NUMBER,
        "delay_ms": NUMBER,
        "interval": TEXT,
        "initial_delay": TEXT,
        "verify_before_send": SWITCH,
    },
    "mutually_exclusive": [["interval", "interval_ms"], ["initial_delay", "delay_ms"]],
}
_LIFETIMES: Options = {
    "type": "dict",
    "options": {
        "valid_lifetime": NUMBER,
        "preferred_lifetime": NUMBER,
        "no_prefix_route": SWITCH,
    },
}


def node_agent() -> ArgumentSpec:
    """Returns the options for the spec of an LBNodeAgent."""
    return ArgumentSpec(
        {
            "node_selector": _SELECTOR,
            "local": {
                "type": "dict",
                "options": {
                    "local_interface": TEXT,
                    "interfaces": TEXTS,
                    "dummy_interface": TEXT,
                    "garp_config": _GARP,
                    "address_config": {
                        "type": "dict",
                        "options": {
                            "local_interface": _LIFETIMES,
                            "dummy_interface": _LIFETIMES,
                        },
                    },
                },
            },
        }
    )

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import pytest

from purelb.module.fields import field_name, fields_of, option_name, option_path


@pytest.mark.parametrize(
    ("option", "field"),
    [
        ("v4pools", "v4pools"),
        ("multi_pool", "multiPool"),
        ("skip_ipv6_dad", "skipIPv6DAD"),
        ("interval_ms", "intervalMs"),
        ("verify_before_send", "verifyBeforeSend"),
    ],
)
def test_options_and_fields_map_to_each_other(option: str, field: str):
    assert field_name(option) == field
    assert option_name(field) == option


def test_a_field_path_becomes_an_option_path():
    assert option_path("spec.local.garpConfig.intervalMs") == "local.garp_config.interval_ms"
    assert option_path("spec.local.v4pools[1]") == "local.v4pools[1]"


def test_only_options_that_are_set_become_fields():
    inner = {"match_labels": {"type": "dict"}, "max_size": {"type": "int"}}
    options = {
        "one_thing": {"type": "dict", "options": inner},
        "many_things": {"type": "list", "elements": "dict", "options": inner},
        "left_out": {"type": "str"},
    }
    given = {
        "one_thing": {"match_labels": {"snake_case": "kept"}, "max_size": None},
        "many_things": [{"max_size": 0, "match_labels": None}],
        "left_out": None,
        "name": "no field",
    }
    assert fields_of(given, options) == {
        "oneThing": {"matchLabels": {"snake_case": "kept"}},
        "manyThings": [{"maxSize": 0}],
    }

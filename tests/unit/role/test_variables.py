# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What users set reaches the roles as they mean it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml

from ansible_collections.purelb.purelb.plugins.filter.caller_path import caller_path
from ansible_collections.purelb.purelb.plugins.lookup import unknown_variables
from tests.support import ROOT

IMAGE, FOLDER = "purelb_install_image", "purelb_audit_folder"


def unknown(*names: str) -> list[str]:
    known, options = unknown_variables.known_names(), unknown_variables.option_names()
    return unknown_variables.problems(names, known=known, options=options)


def test_the_nearest_variable_is_named():
    said = "purelb_install_imge: there is no such variable; did you mean purelb_install_image?"
    assert unknown("purelb_install_imge", IMAGE) == [said]


@pytest.mark.parametrize("name", ["purelb_instal_image", "purelb_verify_node", "purelb_node_nam"])
def test_a_mistyped_prefix_and_the_variables_of_playbooks_are_found(name: str):
    (line,) = unknown(name)
    assert line.startswith(f"{name}: there is no such variable; did you mean ")


def test_a_name_like_no_other_is_refused_only_with_a_prefix_of_ours():
    said = "purelb_install_cluster: there is no such variable"
    assert unknown("purelb_install_cluster", "purelb_cluster", "other") == [said]


def test_every_option_is_known():
    specs = [yaml.safe_load(p.read_text()) for p in ROOT.glob("roles/*/meta/argument_specs.yml")]
    entries = [entry for spec in specs for entry in spec["argument_specs"].values()]
    options = {name for entry in entries for name in entry["options"]}
    of_playbooks = {"purelb_verify_nodes", "purelb_load_nodes", "purelb_node_name"}
    assert options | of_playbooks <= unknown_variables.option_names()
    assert unknown(*options, *of_playbooks) == []


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("made", "{}/made"),
        ("./a/../made", "{}/made"),
        ("a:/b", "{}/a:/b"),
        ("/srv", "/srv"),
        ("~/made", "~/made"),
        ("", ""),
    ],
)
def test_a_relative_path_is_the_callers(
    given: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    assert caller_path(given) == expected.format(os.path.realpath(tmp_path))


def test_a_kubeconfig_that_is_a_dictionary_stays():
    assert caller_path({"kind": "Config"}) == {"kind": "Config"}

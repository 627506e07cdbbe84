# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The guide of the documentation site names roles, variables, modules and options that exist."""

from __future__ import annotations

import ast
import importlib
import re
import textwrap

import pytest
import yaml

from tests.support import ROOT

GUIDE = (ROOT / "docs/docsite/rst/guide.rst").read_text()
BLOCK = re.search(r"^\.\. code-block:: yaml\n\n((?:    .*\n|\n)+)", GUIDE, re.MULTILINE)
(PLAY,) = yaml.safe_load(textwrap.dedent(BLOCK[1]))
TASKS = {task["name"]: task for task in PLAY["tasks"]}
COLLECTION = "purelb.purelb."


def options_of(module: str) -> set[str]:
    """Return the options in the module's documentation and its fragments."""
    tree = ast.parse((ROOT / f"plugins/modules/{module}.py").read_text())
    (text,) = (
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DOCUMENTATION"
    )
    documentation = yaml.safe_load(text)
    options = set(documentation["options"])
    for name in documentation["extends_documentation_fragment"]:
        fragment = importlib.import_module(
            f"ansible_collections.purelb.purelb.plugins.doc_fragments.{name.split('.')[2]}"
        )
        options |= set(yaml.safe_load(fragment.ModuleDocFragment.DOCUMENTATION).get("options", ()))
    return options


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_task(task):
    included = task.get("ansible.builtin.include_role")
    if included:
        role = included["name"].removeprefix(COLLECTION)
        specs = yaml.safe_load((ROOT / f"roles/{role}/meta/argument_specs.yml").read_text())
        assert set(task["vars"]) <= set(specs["argument_specs"]["main"]["options"])
    else:
        (module,) = (name.removeprefix(COLLECTION) for name in task if name.startswith(COLLECTION))
        assert set(task[COLLECTION + module]) <= options_of(module)


def test_defaults_are_for_a_group_of_the_collection():
    groups = yaml.safe_load((ROOT / "meta/runtime.yml").read_text())["action_groups"]
    assert [f"group/{COLLECTION}{group}" for group in groups] == list(PLAY["module_defaults"])


@pytest.mark.parametrize("module", re.findall(r"purelb\.purelb\.(\w+)#module", GUIDE))
def test_named_module_exists(module):
    assert (ROOT / f"plugins/modules/{module}.py").is_file()

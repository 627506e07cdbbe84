# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""All commands of the pages are in blocks that a test can run; all links have targets."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.support import ROOT
from tests.support.docs.doc_runner import GIVEN, NOT_RUN, SHIMS
from tests.support.docs.pages import (
    LANGUAGES,
    PAGES,
    Run,
    Write,
    blocks,
    commands,
    file_name,
    indented,
    is_shown,
    mentioned,
    prose,
    read,
    steps,
)

EACH_PAGE = pytest.mark.parametrize("page", PAGES)
_LINK = re.compile(r"\]\(([^)\s]+)\)")

SAMPLE = """
Text with `kubectl get nodes` in it.

1. Step:

   ```yaml
   # pool.yaml
   kind: ServiceGroup
   ```

   ```sh
   kubectl apply \\
       --filename pool.yaml   # once
   ```

   ```text
   servicegroup … created
   ```
"""


def test_page_is_parsed_into_files_and_commands_with_output():
    write, run = steps(SAMPLE)
    assert write == Write(6, "pool.yaml", "# pool.yaml\nkind: ServiceGroup\n")
    script = "kubectl apply \\\n    --filename pool.yaml   # once\n"
    assert run == Run(11, script, ("servicegroup … created",))
    assert list(commands(script)) == ["kubectl apply --filename pool.yaml"]
    assert list(mentioned(SAMPLE)) == ["kubectl get nodes"]


def test_later_output_belongs_to_no_earlier_command():
    (run,) = steps("```sh\nkubectl get nodes\n```\nWhen it fails:\n\n```text\nno\n```\n")
    assert run.output == ()


@pytest.mark.parametrize(
    ("line", "is_so"),
    [
        ("a  b", True),
        ("a … d", True),
        ("a b c", False),
        ("…", True),
        ("b", False),
        ("x.y", False),
    ],
)
def test_output_is_compared_word_by_word(line, is_so):
    assert is_shown(line, "first\n  a   b\na b c d\nxzy\n") is is_so


@EACH_PAGE
def test_page_has_only_commands_files_and_output(page):
    odd = [(b.line, b.language) for b in blocks(read(page)) if b.language not in LANGUAGES]
    assert odd == []


@EACH_PAGE
def test_page_has_no_commands_outside_fences(page):
    assert list(indented(read(page))) == []


@EACH_PAGE
def test_commands_in_the_text_are_run_by_a_block(page):
    text = read(page)
    runs = [c for step in steps(text) if isinstance(step, Run) for c in commands(step.script)]
    missing = [c for c in mentioned(text) if not any(run.startswith(c) for run in runs)]
    assert missing == []


@EACH_PAGE
def test_every_file_has_a_name_and_is_used(page):
    text = read(page)
    scripts = "".join(step.script for step in steps(text) if isinstance(step, Run))
    for block in blocks(text):
        if block.language == "yaml":
            assert list(yaml.safe_load_all(block.text)), block.line
            assert file_name(block), f"line {block.line} names no file"
            assert file_name(block) in scripts, f"nothing uses {file_name(block)}"


@EACH_PAGE
def test_every_link_has_a_target(page):
    folder = (ROOT / page).parent
    targets = [link.partition("#") for link in _LINK.findall(prose(read(page)))]
    for target, _hash, anchor in targets:
        if target.startswith("https://"):
            continue
        path = folder / target if target else ROOT / page
        assert path.exists(), target
        if anchor:
            assert anchor in anchors(path.read_text()), f"{target}#{anchor}"


@pytest.mark.parametrize("page", ["README.md", "docs/comparison.md"])
def test_pictures_are_there_in_light_and_dark_with_the_same_words(page):
    paths = re.findall(r'(?:srcset|src)="([^"]+)"', read(page))
    texts = [((ROOT / page).parent / path).read_text() for path in paths]
    words = [re.findall(r">([^<>]+)</text>", text) for text in texts]
    assert paths
    for number in range(0, len(paths), 2):
        dark, light = paths[number : number + 2]
        assert dark.replace("dark", "light") == light != dark
        assert words[number] == words[number + 1] != []


def anchors(text):
    """Return the anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_readme_links_every_page():
    targets = set(_LINK.findall(read("README.md")))
    assert {page for page in PAGES if page != "README.md"} - targets == set()


def all_commands():
    scripts = [s.script for page in PAGES for s in steps(read(page)) if isinstance(s, Run)]
    return [command for script in scripts for command in commands(script)]


@pytest.mark.parametrize("command", NOT_RUN)
def test_command_that_is_not_run_is_a_makefile_target(command):
    program, target = command.split()
    assert program == "make"
    assert command in all_commands()
    assert re.search(rf"^{target}:.* ## ", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("program", SHIMS)
def test_every_stand_in_is_used_by_a_page(program):
    assert any(command.split()[0] == program for command in all_commands())


def test_given_files_are_used_by_their_page():
    for page, files in GIVEN.items():
        assert [name for name in files if name not in read(page)] == []

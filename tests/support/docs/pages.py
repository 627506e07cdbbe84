# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Parses the pages of the documentation into steps. Reads Markdown, runs nothing.

A fence declares the kind of its text: ```sh are commands; ```yaml is a file, with its name in a
comment on the first line; ```text is the output of the commands right before it, or a drawing. No
other kinds are allowed, so every command is run.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from tests.support import ROOT

PAGES = tuple(
    str(path.relative_to(ROOT))
    for pattern in ("README.md", "docs/*.md", "roles/*/README.md")
    for path in sorted(ROOT.glob(pattern))
)
LANGUAGES = ("sh", "yaml", "text")
# The programs in the pages; a line that begins with one of these names is a command.
PROGRAMS = (
    "ansible", "ansible-doc", "ansible-galaxy", "ansible-playbook", "bench/bench", "curl", "git",
    "kubectl", "lab/lab", "make", "pip", "podman", "promtool", "python3",
)  # fmt: skip
ANYTHING = "…"
# Lines from the end of a fence to the next with one empty line between them.
_RIGHT_AFTER = 2

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)$")
_FILE_NAME = re.compile(r"# ([\w./-]+\.ya?ml)$")
_INLINE = re.compile(r"`([^`]+)`")
_ASSIGNMENT = re.compile(r"\w+=")


@dataclass(frozen=True)
class Block:
    """A fence of a page: its first line, its kind, and its text without indentation."""

    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Write:
    """A step: write a file."""

    line: int
    name: str
    text: str


@dataclass(frozen=True)
class Run:
    """A step: run commands. `output` has the lines that the page shows as their output."""

    line: int
    script: str
    output: tuple[str, ...] = ()


def read(page: str) -> str:
    """Return the text of a page."""
    return (ROOT / page).read_text()


def blocks(text: str) -> Iterator[Block]:
    """Yield the fences of a page in order."""
    opened: re.Match[str] | None = None
    inside: list[str] = []
    begin = 0
    for number, line in enumerate(text.splitlines(), 1):
        if opened and line.strip() == "```":
            yield Block(begin, opened["language"], "\n".join(inside) + "\n")
            opened = None
        elif opened:
            inside.append(line.removeprefix(opened["indent"]))
        elif fence := _FENCE.match(line):
            opened, inside, begin = fence, [], number
    if opened:
        raise ValueError(f"the fence of line {begin} does not end")


def file_name(block: Block) -> str:
    """Return the file name in a block's first line; empty if it has none."""
    named = _FILE_NAME.match(block.text.partition("\n")[0])
    return named[1] if named else ""


def steps(text: str) -> Iterator[Write | Run]:
    """Yield the steps of a page in order."""
    waiting: Run | None = None
    for block in blocks(text):
        if block.language == "text" and waiting and block.line - _end(waiting) == _RIGHT_AFTER:
            yield Run(waiting.line, waiting.script, tuple(block.text.splitlines()))
            waiting = None
            continue
        if waiting:
            yield waiting
            waiting = None
        if block.language == "sh":
            waiting = Run(block.line, block.text)
        elif block.language == "yaml":
            yield Write(block.line, file_name(block), block.text)
    if waiting:
        yield waiting


def _end(run: Run) -> int:
    """Return the line of the fence that ends the commands."""
    return run.line + run.script.count("\n") + 1


def is_shown(expected: str, output: str) -> bool:
    """Whether a line of the output matches a line of a page, in which `…` stands for any text."""
    parts = [re.escape(part.strip()) for part in expected.split(ANYTHING)]
    pattern = ".*".join(r"\s+".join(part.split(r"\ ")) for part in parts)
    return re.search(rf"^\s*{pattern}\s*$", output, re.MULTILINE) is not None


def commands(script: str) -> Iterator[str]:
    """Yield the command lines of a script, continued lines joined, without comments."""
    for line in script.replace("\\\n", " ").splitlines():
        command = " ".join(shlex.split(line, comments=True))
        if command:
            yield command


def prose(text: str) -> str:
    """Return the page without its fences and comments."""
    kept, inside = [], False
    for line in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).splitlines():
        if _FENCE.match(line) or (inside and line.strip() == "```"):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def mentioned(text: str) -> Iterator[str]:
    """Yield the command lines in the running text; each must also be in a block, which is run."""
    for code in _INLINE.findall(prose(text)):
        if is_command(code):
            yield " ".join(code.split())


def indented(text: str) -> Iterator[str]:
    """Yield the commands in indented blocks without a fence."""
    for line in prose(text).splitlines():
        if line.startswith("    ") and is_command(line):
            yield line.strip()


def is_command(code: str) -> bool:
    """Whether this is a command line: one of PROGRAMS with arguments."""
    words = code.split()
    while words and _ASSIGNMENT.match(words[0]):
        words.pop(0)
    return len(words) > 1 and words[0] in PROGRAMS

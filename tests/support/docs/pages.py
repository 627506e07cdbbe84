# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the pages of the documentation ask a reader to do, as steps that a test can do.

A fence says what its text is: ```sh are commands, ```yaml is a file, whose name is the comment in
its first line, and ```text is what the commands right before it print, or else a drawing. There are
no others, so nothing can look like a command and not be run. Reads Markdown, runs nothing.
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
# The programs that a reader is asked to run; their names begin what is a command.
PROGRAMS = (
    "ansible", "ansible-doc", "ansible-galaxy", "ansible-playbook", "bench/bench", "curl", "git",
    "kubectl", "lab/lab", "make", "pip", "podman", "promtool",
)  # fmt: skip
ANYTHING = "…"
# From one fence to the next with an empty line between them.
_RIGHT_AFTER = 2

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)$")
_FILE_NAME = re.compile(r"# ([\w./-]+\.ya?ml)$")
_INLINE = re.compile(r"`([^`]+)`")
_ASSIGNMENT = re.compile(r"\w+=")


@dataclass(frozen=True)
class Block:
    """A fence of a page: where it begins, what it says to be, and its text without indentation."""

    line: int
    language: str
    text: str


@dataclass(frozen=True)
class Write:
    """A file that the reader writes."""

    line: int
    name: str
    text: str


@dataclass(frozen=True)
class Run:
    """Commands that the reader runs, and the lines that they print; none if the page shows none."""

    line: int
    script: str
    output: tuple[str, ...] = ()


def read(page: str) -> str:
    """The text of a page."""
    return (ROOT / page).read_text()


def blocks(text: str) -> Iterator[Block]:
    """The fences of a page in order."""
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
    """The name of the file that a block is; empty if it says none."""
    named = _FILE_NAME.match(block.text.partition("\n")[0])
    return named[1] if named else ""


def steps(text: str) -> Iterator[Write | Run]:
    """What a reader of a page does, in order."""
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
    """The line of the fence that ends the commands."""
    return run.line + run.script.count("\n") + 1


def is_shown(expected: str, output: str) -> bool:
    """Whether some line of the output is as a page shows it; `…` stands for anything."""
    parts = [re.escape(part.strip()) for part in expected.split(ANYTHING)]
    pattern = ".*".join(r"\s+".join(part.split(r"\ ")) for part in parts)
    return re.search(rf"^\s*{pattern}\s*$", output, re.MULTILINE) is not None


def commands(script: str) -> Iterator[str]:
    """The command lines of a script, continued lines joined and comments left out."""
    for line in script.replace("\\\n", " ").splitlines():
        command = " ".join(shlex.split(line, comments=True))
        if command:
            yield command


def prose(text: str) -> str:
    """The page without its fences and comments."""
    kept, inside = [], False
    for line in re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL).splitlines():
        if _FENCE.match(line) or (inside and line.strip() == "```"):
            inside = not inside
        elif not inside:
            kept.append(line)
    return "\n".join(kept)


def mentioned(text: str) -> Iterator[str]:
    """Command lines in the running text: they must be those of a block, so that they are run."""
    for code in _INLINE.findall(prose(text)):
        if is_command(code):
            yield " ".join(code.split())


def indented(text: str) -> Iterator[str]:
    """Lines that Markdown shows as a block although there is no fence, and that are commands."""
    for line in prose(text).splitlines():
        if line.startswith("    ") and is_command(line):
            yield line.strip()


def is_command(code: str) -> bool:
    """Whether this is a program with arguments, as one types them."""
    words = code.split()
    while words and _ASSIGNMENT.match(words[0]):
        words.pop(0)
    return len(words) > 1 and words[0] in PROGRAMS

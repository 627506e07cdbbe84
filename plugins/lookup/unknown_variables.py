# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Finds mistyped variables of the collection."""

from __future__ import annotations

DOCUMENTATION = r"""
name: unknown_variables
short_description: Find mistyped variables of the collection
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Returns a line for each variable that looks like one of the collection and that no role and no
    playbook knows, with the nearest one that exists.
  - These are all variables with a prefix of the collection, such as C(purelb_install_), and others
    that begin with C(purelb_) and are nearly one that exists.
options: {}
"""

EXAMPLES = r"""
- name: Refuse mistyped variables
  ansible.builtin.assert:
    that: unknown | length == 0
    fail_msg: "{{ unknown | join('; ') }}"
  vars:
    unknown: "{{ query('purelb.purelb.unknown_variables') }}"
"""

RETURN = r"""
_raw:
  description: A line for each unknown variable.
  type: list
  elements: str
"""

import difflib
import re
from pathlib import Path
from typing import Any, Dict, FrozenSet, Iterable, Iterator, List, Optional

from ansible.plugins.lookup import LookupBase

COLLECTION = Path(__file__).resolve().parents[2]
OURS = "purelb_"
# A role or a playbook may use any name with its prefix.
PREFIXES = tuple(
    f"{OURS}{part}_" for part in ("audit", "install", "load", "migrate", "rotate", "verify")
)
NAME = re.compile(r"\bpurelb_\w+")
# Of a role in its argument_specs, of a playbook where it says the default.
OPTION = re.compile(r"^ +(purelb_\w+):$|(purelb_\w+) \| default\(", re.MULTILINE)
# How much of a name, without the part that all share, must be as in another: difflib's ratio.
NEAR = 0.85


def problems(names: Iterable[str], *, known: FrozenSet[str], options: FrozenSet[str]) -> List[str]:
    """Returns a line for each unknown name; `known` are all names that mean something."""
    ends = [option[len(OURS) :] for option in options]
    return [
        f"{name}: there is no such variable" + (f"; did you mean {OURS}{near[0]}?" if near else "")
        for name in sorted(names)
        if name.startswith(OURS) and name not in known
        for near in [difflib.get_close_matches(name[len(OURS) :], ends, n=1, cutoff=NEAR)]
        if near or name.startswith(PREFIXES)
    ]


def known_names() -> FrozenSet[str]:
    """Returns every name that occurs in a role or a playbook; a mistyped one does not."""
    return frozenset(name for text in _texts("*.yml", "*.j2") for name in NAME.findall(text))


def option_names() -> FrozenSet[str]:
    """Returns the variables that users set."""
    texts = _texts("argument_specs.yml", "playbooks/*.yml")
    found = (name for text in texts for pair in OPTION.findall(text) for name in pair)
    return frozenset(name for name in found if name)


def _texts(*patterns: str) -> Iterator[str]:
    for folder in ("roles", "playbooks"):
        for path in sorted((COLLECTION / folder).rglob("*")):
            if path.is_file() and any(path.match(pattern) for pattern in patterns):
                yield path.read_text(encoding="utf-8")


class LookupModule(LookupBase):
    """The lookup plugin."""

    def run(
        self,
        terms: List[Any],  # noqa: ARG002 - it takes none
        variables: Optional[Dict[str, Any]] = None,
        **_options: Any,
    ) -> List[str]:
        """Return a line for each unknown variable of the host."""
        return problems(variables or {}, known=known_names(), options=option_names())

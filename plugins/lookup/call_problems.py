# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Finds tags and limits with which a playbook of the collection would do nothing."""

from __future__ import annotations

DOCUMENTATION = r"""
name: call_problems
short_description: Find tags and limits with which a playbook of the collection would do nothing
version_added: 0.1.0
author:
  - PureLB for Ansible authors (!UNKNOWN)
description:
  - Ansible ignores a tag that no task has, and skips a play whose hosts a limit leaves out, both
    without an error.
  - Returns a line for each such option of C(ansible-playbook), if a playbook of this collection was
    called. In a playbook that imports one, the tags may be those of other plays.
options:
  tags:
    description:
      - The tags of the playbook.
    type: list
    elements: str
    default: []
  needs_localhost:
    description:
      - Whether the playbook runs on localhost.
    type: bool
    default: true
"""

EXAMPLES = r"""
- name: Refuse tags and limits that select nothing
  ansible.builtin.assert:
    that: query('purelb.purelb.call_problems', tags=['crds']) | length == 0
  tags: [always]
"""

RETURN = r"""
_raw:
  description: A line for each option.
  type: list
  elements: str
"""

from typing import Any, Dict, List, Optional, Sequence

from ansible import context
from ansible.plugins.lookup import LookupBase

OURS = "purelb.purelb."
# With a meaning of their own.
SPECIAL = frozenset({"all", "always", "tagged", "untagged"})


def problems(
    called: Sequence[str],
    *,
    wanted: Sequence[str],
    limit: Optional[str],
    known: Sequence[str],
    needs_localhost: bool,
) -> List[str]:
    """Returns a line for each option; `called` are the playbooks, `wanted` the tags of the call."""
    if not any(name.startswith(OURS) for name in called):
        return []
    found = []
    unknown = sorted(set(wanted) - SPECIAL - set(known))
    if unknown:
        words = f"it has these: {', '.join(known)}" if known else "it has none"
        found.append(f"--tags {','.join(unknown)}: this playbook has no such tag; {words}")
    if needs_localhost and limit is not None and "localhost" not in limit.replace(":", ","):
        found.append(
            f"--limit {limit}: this playbook runs on localhost, which the limit leaves out: leave "
            f"the limit out, or add it (--limit {limit},localhost)"
        )
    return found


class LookupModule(LookupBase):
    """The lookup plugin."""

    def run(
        self, terms: List[str], variables: Optional[Dict[str, Any]] = None, **kwargs: Any
    ) -> List[str]:
        """Return a line for each option of the present call; takes no terms."""
        del terms
        self.set_options(var_options=variables, direct=kwargs)
        given = context.CLIARGS
        return problems(
            given.get("args") or (),
            wanted=given.get("tags") or (),
            limit=given.get("subset"),
            known=self.get_option("tags"),
            needs_localhost=self.get_option("needs_localhost"),
        )

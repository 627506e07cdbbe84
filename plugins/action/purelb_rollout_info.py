# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Runs the module purelb_rollout_info until all nodes are done, and displays each of them."""

from __future__ import annotations

from typing import Any, Dict, Optional

from ansible.module_utils.parsing.convert_bool import boolean
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

DISPLAY = Display()


class ActionModule(ActionBase):
    """The action plugin."""

    def run(
        self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None
    ) -> Dict[str, Any]:
        """Run the module once, or with `wait` until all nodes are done or it fails."""
        result: Dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        waits = boolean(arguments.get("wait", False)) and not self._task.check_mode
        known = set(arguments.get("known") or ())
        while True:
            answer = self._execute_module(
                module_args={**arguments, "known": sorted(known)}, task_vars=task_vars
            )
            done = answer.get("done") or []
            if waits:
                for node in (node for node in done if node not in known):
                    DISPLAY.display(f"{node} runs the current agent, with its Lease and addresses")
            known = set(done)
            if not waits or answer.get("failed") or answer.get("complete"):
                return {**result, **answer}

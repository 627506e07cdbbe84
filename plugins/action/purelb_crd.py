# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Passes the collection's definitions, files on the controller, to the module purelb_crd."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict, Optional

import yaml
from ansible.plugins.action import ActionBase

FOLDER = Path(__file__).resolve().parents[2] / "roles" / "purelb_install" / "files" / "crds"


class ActionModule(ActionBase):
    """The action plugin."""

    def run(
        self, tmp: Optional[str] = None, task_vars: Optional[Dict[str, Any]] = None
    ) -> Dict[str, Any]:
        """Run the module; the collection's definitions are the default of `definitions`."""
        result: Dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        if arguments.get("definitions") is None:
            paths = sorted(FOLDER.glob("*.yaml"))
            arguments["definitions"] = [yaml.safe_load(path.read_text("utf-8")) for path in paths]
        result.update(
            self._execute_module(
                module_args=arguments, task_vars=task_vars, wrap_async=self._task.async_val
            )
        )
        return result

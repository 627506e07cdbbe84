# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the options in module_utils/purelb/module/argspec.py."""

from __future__ import annotations


class ModuleDocFragment:
    """State of objects, and conflicts with other managers."""

    DOCUMENTATION = r"""
options:
  state:
    description:
      - V(present) creates or changes the objects, V(absent) removes them.
    type: str
    choices: [present, absent]
    default: present
  force_conflicts:
    description:
      - Take over fields that another manager has set to other values. Otherwise such a conflict is
        an error that names the fields and the manager.
    type: bool
    default: false
"""

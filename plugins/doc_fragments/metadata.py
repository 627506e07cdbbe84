# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the options in module_utils/purelb/module/argspec.py."""

from __future__ import annotations


class ModuleDocFragment:
    """Name, labels and annotations of an object."""

    DOCUMENTATION = r"""
options:
  name:
    description:
      - Name of the object.
    type: str
    required: true
  labels:
    description:
      - Labels of the object. Labels of other managers stay. Those that an earlier task set and this
        one omits are removed.
    type: dict
  annotations:
    description:
      - Annotations of the object, with the same rules as O(labels).
    type: dict
"""

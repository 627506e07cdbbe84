# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Texts of the options in module_utils/purelb/argspec.py."""

from __future__ import annotations


class ModuleDocFragment:
    """What one object is called and marked with."""

    DOCUMENTATION = r"""
options:
  name:
    description:
      - Name of the object.
    type: str
    required: true
  labels:
    description:
      - Labels of the object. Those that others set stay. Those that an earlier task set and this
        one leaves out go.
    type: dict
  annotations:
    description:
      - Annotations of the object, in the same way.
    type: dict
"""

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Documentation of the options in module_utils/purelb/module/argspec.py."""

from __future__ import annotations


class ModuleDocFragment:
    """The namespace of PureLB."""

    DOCUMENTATION = r"""
options:
  namespace:
    description:
      - Namespace in which PureLB is installed.
    type: str
    default: purelb-system
"""

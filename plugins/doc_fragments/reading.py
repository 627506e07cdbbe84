# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Check and diff mode of modules that only read."""

from __future__ import annotations


class ModuleDocFragment:
    """Attributes of modules that never change anything."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    support: full
    description: Never changes anything.
  diff_mode:
    support: N/A
    description: Never changes anything.
"""

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What modules that only look say of check and diff mode."""

from __future__ import annotations


class ModuleDocFragment:
    """Nothing is ever changed."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    support: full
    description: Never changes anything.
  diff_mode:
    support: N/A
    description: Never changes anything.
"""

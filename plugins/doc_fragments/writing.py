# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""What modules that write to the cluster say of check and diff mode."""

from __future__ import annotations


class ModuleDocFragment:
    """The API server foretells a change."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    support: full
    description: By a dry run in the API server, with its validation.
  diff_mode:
    support: full
    description: Without the API server's bookkeeping.
"""

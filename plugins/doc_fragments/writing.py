# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: GPL-3.0-or-later
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)

"""Check and diff mode of modules that write to the cluster."""

from __future__ import annotations


class ModuleDocFragment:
    """Attributes of modules whose changes the API server can predict."""

    DOCUMENTATION = r"""
attributes:
  check_mode:
    support: full
    description: A dry run with the API server's validation.
  diff_mode:
    support: full
    description: Without the fields that the API server maintains.
"""

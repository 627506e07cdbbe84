# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Carries out a migration from v1 to v2 and back, step by step.

Start at `phases`, the table of steps. Every step can be repeated, also after an interruption.
Which v2 objects replace those of v1 is decided in core/migration, not here.
"""

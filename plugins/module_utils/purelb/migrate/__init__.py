# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Carries out a migration from v1 to v2 and back, phase by phase.

Each phase can be repeated, also after it was interrupted. What becomes of an object is decided in
core/migration.
"""

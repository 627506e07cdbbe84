# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Conversion of PureLB v1 objects to v2 and back, and proposals for a migration.

It converts and proposes; it never reads or writes a cluster.
"""

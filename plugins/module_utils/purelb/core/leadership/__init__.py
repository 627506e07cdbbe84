# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Leader election between replicas through a shared lock, and the formats of such locks.

Observations and their times are arguments; it never reads or writes a lock, and never reads a
clock.
"""

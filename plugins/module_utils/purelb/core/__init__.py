# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Decisions: pure functions on frozen records.

Imports nothing else of ours, does no I/O and reads no clock; times are arguments. Directly in
it is what all subjects share: records (model), names, settings, errors, and how addresses and times
are read.
"""

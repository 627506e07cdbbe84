# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Shared by modules, programs and tests: the pure core, and the I/O of the modules."""

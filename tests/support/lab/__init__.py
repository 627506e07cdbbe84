# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Helpers of the tests on a lab: queries, faults, recordings, and which worker has which lab."""

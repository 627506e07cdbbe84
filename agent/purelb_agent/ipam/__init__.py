# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses from other systems: the interface to them, the queue of requests, and each system.

Does not decide which Service gets an address.
"""

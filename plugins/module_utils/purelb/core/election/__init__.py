# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Who has an address: Leases, subnets, the winner, and when a winner may change.

Every node computes the same result from the same Leases and Services. Nothing here knows what is on
an interface.
"""

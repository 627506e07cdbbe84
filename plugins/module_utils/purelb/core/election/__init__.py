# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which node is to hold an address: VIPs, subnets, candidates and the winner.

Every node computes the same result from the same Leases and Services. It never looks at interfaces
and never writes a Lease.
"""

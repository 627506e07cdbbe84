# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which node holds an address: Leases, candidates, the winner, and when the winner may change.

Every node computes the same result from the same Leases and Services. It never looks at interfaces
and never writes a Lease.
"""

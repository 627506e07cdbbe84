# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The node's own Lease, and what the node does while the API server is unreachable.

The only package that writes the Lease. core/election decides whether the node may hold addresses.
"""

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Carries to and from the Holder of this node what decides whether it may hold addresses.

Renewals of its Lease, reads of those of others, and questions to their nodes. The only package that
writes the Lease.
"""

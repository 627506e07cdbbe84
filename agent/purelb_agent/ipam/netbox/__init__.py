# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Addresses from a NetBox: its REST client, the addresses of a tenant, and the source of both."""

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which addresses a Service gets, from which ServiceGroup, and why it gets none.

Decides for one Service at a time. Never writes a Service, and never asks an external IPAM itself.
"""

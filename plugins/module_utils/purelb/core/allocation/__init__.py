# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Which addresses a Service gets, from which ServiceGroup, and the reason if it gets none.

It decides for one Service at a time. It never writes a Service, and never calls an external IPAM.
"""

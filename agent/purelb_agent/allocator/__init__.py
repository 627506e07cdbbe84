# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The program allocator: addresses for Services, status of ServiceGroups, taints, conversion.

Writes only while it leads. Which address a Service gets is decided in core/allocation.
"""

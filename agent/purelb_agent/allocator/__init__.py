# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The program allocator: addresses for Services, status of ServiceGroups, taints, conversion.

Only the leader writes. core/allocation decides which address a Service gets.
"""

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Collects the input of an audit: from the API server, the kernels of the nodes, and the segment.

Read-only. core/audit decides what is wrong.
"""

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Collects what an audit judges: from the API server, from the kernels, from the segment.

Reads only. What is wrong is decided in core/audit.
"""

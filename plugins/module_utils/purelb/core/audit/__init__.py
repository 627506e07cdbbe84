# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Findings about a cluster: from Leases and Services, from kernels and from network segments.

It evaluates evidence that the modules collect, and never collects any itself. The programs never
import it, so the image does not contain it.
"""

# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What is wrong in a cluster: findings from Leases and Services, from kernels and from segments.

Judges evidence that others collected. The programs do not import it, so the image does not have it.
"""

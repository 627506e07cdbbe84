# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Models of what a node is made of: the kernel's interfaces and addresses."""

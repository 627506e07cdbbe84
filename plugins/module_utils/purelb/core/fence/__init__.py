# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""The fence: programs in the kernel that silence a node's addresses when its right has ended.

It writes the programs and the messages that load them, and says where they belong; it never makes
a system call.
"""

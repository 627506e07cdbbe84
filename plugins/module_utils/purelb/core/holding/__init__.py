# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Whether this node may hold an address: its right, who else counts, and permissions.

It decides what to say to other nodes and what their answers mean. It never elects a winner, looks
at an interface, or sends anything.
"""

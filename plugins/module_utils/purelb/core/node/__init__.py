# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a node does with its VIPs: decisions, the plan for its interfaces, frames and probes.

It computes and encodes; it never opens a socket or changes an interface.
"""

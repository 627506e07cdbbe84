# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What a node does about its VIPs: decisions, the plan for its interfaces, frames and probes.

Computes and encodes; never touches a socket or an interface.
"""

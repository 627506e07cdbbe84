# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What the allocator says to a sidecar: ipam.proto, and what agent/generate.py makes of it."""

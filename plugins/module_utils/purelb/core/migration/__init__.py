# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""What objects of PureLB v1 become in v2, and the way back.

Converts and proposes; never reads or writes a cluster.
"""

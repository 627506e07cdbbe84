# SPDX-FileCopyrightText: The PureLB for Ansible authors
# SPDX-License-Identifier: Apache-2.0
"""Messages between the agents of a cluster, and the keys that they are signed with."""
